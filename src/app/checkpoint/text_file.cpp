#include "app/checkpoint/text_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/check.h"

namespace muo {

void replace_file(const std::filesystem::path& file, std::string_view contents) {
  const std::filesystem::path temporary = fmt::format("{}.{}.tmp", file.string(), getpid());
  const auto fail = [&](const std::string& reason) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw Error(fmt::format("cannot write {}: {}", file.string(), reason));
  };
  errno = 0;
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << contents;
  out.close();
  if (!out) fail(std::generic_category().message(errno));
  std::error_code error;
  std::filesystem::rename(temporary, file, error);
  if (error) fail(error.message());
}

}  // namespace muo
