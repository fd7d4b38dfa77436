#include "support/paths.h"

#include <cstdlib>
#include <filesystem>

#include "support/files.h"

namespace muo::test {
namespace {

// Returns `path`, or a link called `name` to that folder if the path would need quoting in a shell.
std::string one_word(const std::string& path, const char* name) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-";
  if (path.find_first_not_of(kPlain) == std::string::npos) return path;
  static const TemporaryDirectory links;
  const std::filesystem::path link = links.path() / name;
  if (!std::filesystem::is_symlink(link)) std::filesystem::create_directory_symlink(path, link);
  return link;
}

}  // namespace

std::string source_directory() {
  const char* elsewhere = std::getenv("MUO_TEST_SOURCES");  // NOLINT(concurrency-mt-unsafe)
  return one_word(elsewhere == nullptr ? MUO_SOURCE_DIR : elsewhere, "sources");
}
std::string program() {
  const std::filesystem::path path = MUO_PROGRAM;  // its libraries are in the same folder
  return one_word(path.parent_path(), "build") + "/" + path.filename().native();
}

}  // namespace muo::test
