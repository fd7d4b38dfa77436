#include "data/input_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "unit/data/data_files.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;
using test::input_error;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const FileList& list, const fs::path& base) {
  std::vector<std::string> out;
  for (const InputFile& file : list.files)
    out.push_back(file.path.lexically_relative(base).native());
  return out;
}

FileList list(std::vector<fs::path> paths) { return list_files(paths); }

TEST(InputFiles, DirectoryLoopsEndAndNothingIsTakenTwice) {
  const TempDir dir;
  dir.write("a/one", "1");
  dir.write("b/two", "2");
  fs::create_directory_symlink("..", dir.path() / "a/up");
  fs::create_directory_symlink(".", dir.path() / "b/here");
  fs::create_directory_symlink(dir.path() / "a", dir.path() / "c");
  fs::create_symlink(dir.path() / "a/one", dir.path() / "one_again");
  const FileList found = list({dir.path()});
  EXPECT_THAT(names(found, dir.path()), ElementsAre("a/one", "b/two"));
  EXPECT_EQ(found.repeated, 4);
}

TEST(InputFiles, FollowsLinksToFilesAndDirectoriesElsewhere) {
  const TempDir dir;
  const TempDir elsewhere;
  const auto file = elsewhere.write("file", "1");
  elsewhere.write("sub/inner", "2");
  fs::create_symlink(file, dir.path() / "link");
  fs::create_directory_symlink(elsewhere.path() / "sub", dir.path() / "tree");
  EXPECT_THAT(names(list({dir.path()}), dir.path()), ElementsAre("link", "tree/inner"));
}

TEST(InputFiles, AFileNamedTwiceIsTakenOnce) {
  const TempDir dir;
  const auto file = dir.write("a", "1");
  const FileList found = list({file, file, dir.path(), dir.path()});
  EXPECT_THAT(names(found, dir.path()), ElementsAre("a"));
  EXPECT_EQ(found.repeated, 3);
}

TEST(InputFiles, PatternsAreExpandedInTheOrderOfBytes) {
  const TempDir dir;
  dir.write("t_2.bin", "");
  dir.write("t_10.bin", "");
  dir.write("t_1.txt", "");
  dir.write("T_3.bin", "");
  EXPECT_THAT(names(list({dir.path() / "?_*.bin"}), dir.path()),
              ElementsAre("T_3.bin", "t_10.bin", "t_2.bin"));
  const auto literal = dir.write("star*", "x");  // an existing name is not treated as a pattern
  dir.write("starling", "x");
  EXPECT_THAT(names(list({literal}), dir.path()), ElementsAre("star*"));
  const auto none = dir.path() / "*.none";
  EXPECT_THAT(input_error({.paths = {none}}),
              AllOf(HasSubstr(none.native()), HasSubstr("nothing matches this pattern")));
  EXPECT_THAT(input_error({.paths = {"hf://datasets/a/b"}}),
              HasSubstr("download it (`hf download "));
  EXPECT_THAT(input_error({.paths = {"https://a.org/b.txt"}}),
              HasSubstr("download it (`curl -LO "));
}

TEST(InputFiles, FormatsOfTokenizeAreRefusedByName) {
  const TempDir dir;
  const auto text = dir.write("a.txt", "some text that is long enough");
  for (const auto& [name, kind] : {std::pair{"a.jsonl", "JSON Lines"},
                                   {"a.txt.gz", "compressed"},
                                   {"a.zst", "compressed"},
                                   {"a.parquet", "Parquet"}}) {
    const auto path = dir.write(name, "not looked at");
    EXPECT_THAT(input_error({.paths = {path}}),
                AllOf(HasSubstr(path.native() + " is " + kind), HasSubstr("muograph tokenize")));
    EXPECT_THAT(input_error({.paths = {text}, .val_paths = {path}}), HasSubstr(kind));
  }
  EXPECT_THAT(
      open_corpus({.paths = {dir.path()}}).description,
      AllOf(HasSubstr("1 file,"), HasSubstr("left out: 1 JSON Lines, 1 Parquet, 2 compressed")));
  std::filesystem::remove(text);
  EXPECT_THAT(input_error({.paths = {dir.path()}}), HasSubstr("no text here (left out: 1 JSON"));
}

TEST(InputFiles, SpecialFilesInDirectoriesAreSkippedAndCounted) {
  const TempDir dir;
  dir.write("text", "some text that is long enough");
  ASSERT_EQ(::mkfifo((dir.path() / "fifo").c_str(), 0600), 0);
  fs::create_symlink("nowhere", dir.path() / "dangling");
  fs::create_symlink("self", dir.path() / "self");
  EXPECT_EQ(list({dir.path()}).special, 3);
  EXPECT_THAT(open_corpus({.paths = {dir.path()}}).description,
              HasSubstr("3 fifos, devices or broken links skipped"));
}

TEST(InputFiles, RefusesNamedPathsWithoutFiles) {
  const TempDir dir;
  const auto error_of = [](const fs::path& path) { return input_error({.paths = {path}}); };
  const auto missing = dir.path() / "missing.txt";
  EXPECT_THAT(error_of(missing),
              AllOf(HasSubstr(missing.native()), HasSubstr("no such file or directory")));
  const auto below_file = dir.write("file", "text") / "x";
  EXPECT_THAT(error_of(below_file),
              AllOf(HasSubstr(below_file.native()), HasSubstr("no such file")));
  EXPECT_THAT(error_of(""), HasSubstr("an empty path"));
  const auto fifo = dir.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(error_of(fifo), AllOf(HasSubstr(fifo.native()), HasSubstr("is a fifo")));
  EXPECT_THAT(error_of("/dev/zero"), AllOf(HasSubstr("/dev/zero"), HasSubstr("is a device")));
  const auto empty = dir.path() / "empty";
  fs::create_directory(empty);
  EXPECT_THAT(error_of(empty),
              AllOf(HasSubstr(empty.native()), HasSubstr("no file in this directory")));
  std::ofstream(empty / ".hidden") << "text";
  EXPECT_THAT(error_of(empty), HasSubstr("no file in this directory"));
  const auto loop = dir.path() / "loop";
  fs::create_symlink("loop", loop);
  EXPECT_THAT(error_of(loop),
              AllOf(HasSubstr(loop.native()), HasSubstr("Too many levels of symbolic links")));
  EXPECT_THAT(error_of(std::string(5000, 'n')), HasSubstr("File name too long"));
}

// Acts as an unprivileged user during its lifetime, if the tests run as root.
class Unprivileged {
 public:
  Unprivileged() {
    if (was_root_ && ::seteuid(65534) != 0) throw std::runtime_error("seteuid");
  }
  ~Unprivileged() {
    if (was_root_ && ::seteuid(0) != 0) std::abort();  // later tests need root again
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  bool was_root_ = ::geteuid() == 0;
};

// Uses relative paths, because a temporary directory may be below one that other
// users may not search.
TEST(InputFiles, RefusesUnreadablePaths) {
  const TempDir dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  fs::permissions(".", fs::perms(0755));
  dir.write("file.txt", "text");
  dir.write("shard.bin", test::shard_bytes({1, 2, 3}));
  dir.write("closed/inside.txt", "text");
  dir.write("listed/b/inside.txt", "text");  // its names can be read, but not its files
  dir.write("listed/a", "text");
  fs::create_directory("links");
  fs::create_symlink("../closed/inside.txt", "links/link");
  for (const char* path : {"file.txt", "shard.bin", "closed"})
    fs::permissions(path, fs::perms::none);
  fs::permissions("listed", fs::perms(0444));
  {
    const Unprivileged user;
    for (const auto& [given, named] :
         {std::pair{"file.txt", "file.txt"}, std::pair{"shard.bin", "shard.bin"},
          std::pair{"closed/inside.txt", "closed/inside.txt"}, std::pair{"closed", "closed"},
          std::pair{".", "./closed"}, std::pair{"listed", "listed"},
          std::pair{"listed/a", "listed/a"}, std::pair{"links", "links/link"}})
      EXPECT_THAT(input_error({.paths = {given}}),
                  testing::StartsWith(std::string(named) +
                                      ": cannot be read: Permission denied; make it readable"));
  }
  for (const char* path : {"closed", "listed"})  // so that they can be removed
    fs::permissions(path, fs::perms(0700));
  fs::current_path(before);
}

}  // namespace
}  // namespace muo::data
