#include "support/files.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "base/check.h"

namespace muo::test {

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "muograph_test_XXXXXX").string();
  MUO_CHECK(mkdtemp(name.data()) != nullptr, name);
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // leftovers do no harm
  std::filesystem::remove_all(path_, ignored);
}

FullDisk::FullDisk(rlim_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  MUO_CHECK(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
  MUO_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

FullDisk::~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

std::string read_file(const std::filesystem::path& path) {
  std::string contents(std::filesystem::file_size(path), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(contents.data(), static_cast<std::streamsize>(contents.size()));
  MUO_CHECK(file.good(), "reading ", path.string());
  return contents;
}

void write_file(const std::filesystem::path& path, std::string_view contents) {
  std::filesystem::remove(path);  // ext4 flushes a file that is truncated and rewritten
  std::ofstream file(path, std::ios::binary);
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  file.close();
  MUO_CHECK(file.good(), "writing ", path.string());
}

}  // namespace muo::test
