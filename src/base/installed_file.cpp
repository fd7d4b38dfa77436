#include "base/installed_file.h"

#include <system_error>

#include "base/shell_word.h"

namespace muo {

std::filesystem::path installed_file(const std::string& name) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {"../share/muograph", "../.."})
    if (auto file = (program / folder / name).lexically_normal();
        std::filesystem::exists(file, error))
      return file;
  return {};
}

std::string installed_word(const std::string& name) {
  const std::filesystem::path file = installed_file(name);
  return file.empty() ? name : shell_word(file.string());
}

}  // namespace muo
