#include "base/file_bytes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>

#include "base/threads.h"
#include "support/files.h"

namespace muo {
namespace {

constexpr std::size_t kMapped = std::size_t{4} << 20;  // large enough to be mapped

// libyaml, for example, does not accept null for an empty text.
TEST(FileBytes, AnEmptyFileHasAnAddress) {
  const test::TemporaryDirectory dir;
  test::write_file(dir.path() / "empty", "");
  const FileBytes file(dir.path() / "empty");
  EXPECT_NE(file.text().data(), nullptr);
  EXPECT_EQ(file.text(), "");
}

TEST(FileBytesDeathTest, TruncatedFileEndsTheProgramAndIsNamed) {
  const test::TemporaryDirectory dir;
  for (const char* name : {"first", "second", "third"})
    test::write_file(dir.path() / name, std::string(kMapped, 'x'));
  const FileBytes first(dir.path() / "first");
  static_cast<void>(FileBytes(dir.path() / "third"));  // the message must not name a former mapping
  const FileBytes second(dir.path() / "second");
  const auto read_cut = [&] {
    std::filesystem::resize_file(dir.path() / "second", 1);
    static_cast<void>(std::string(second.text()).empty());
  };
  EXPECT_EXIT(read_cut(), testing::ExitedWithCode(3),
              "^muograph: error: /.*/second: cut short, or its disk failed, .*--resume auto");
  const auto read_on_a_thread = [&] {
    take_signals_on_own_thread();
    std::thread(read_cut).join();
  };
  EXPECT_EXIT(read_on_a_thread(), testing::ExitedWithCode(3), "/second: cut short");
}

}  // namespace
}  // namespace muo
