#include "base/durable_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

#include "support/failing_call.h"
#include "support/files.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::FailingCall;
using test::FullDisk;
using test::read_file;
using test::write_file;
using testing::ElementsAre;
using testing::HasSubstr;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const WriteError& error) {
    return error.what();
  }
  return "no error";
}

class DurableFiles : public testing::Test {
 protected:
  const test::TemporaryDirectory directory_;
  const fs::path root_ = directory_.path(), file_ = root_ / "file";
};

TEST_F(DurableFiles, ReplacesAFileAtomically) {
  replace_file(file_, "first");
  EXPECT_EQ(read_file(file_), "first");
  {
    const FullDisk disk(10);
    EXPECT_THAT(error_of([&] { replace_file(file_, std::string(100, 'x')); }),
                AllOf(HasSubstr("cannot write " + file_.string()), HasSubstr("free space")));
  }
  EXPECT_EQ(read_file(file_), "first");
  EXPECT_THAT(entries_of(root_), ElementsAre(file_));
  for (const char* const function : {"fsync", "rename"}) {
    const FailingCall call(function, 1);
    EXPECT_THAT(error_of([&] { replace_file(file_, "second"); }), HasSubstr("Input/output error"));
    EXPECT_EQ(read_file(file_), "first");
    EXPECT_THAT(entries_of(root_), ElementsAre(file_));
  }
  EXPECT_THAT(error_of([&] { replace_file(root_ / "none" / "file", ""); }),
              HasSubstr("No such file or directory"));
}

TEST_F(DurableFiles, ContinuesAfterAShortWrite) {
  const OutputFile file(file_, 0);
  const std::string text = "0123456789abcde";
  const FullDisk disk(10);
  EXPECT_THAT(error_of([&] { file.write(0, std::as_bytes(std::span(text))); }),
              HasSubstr("free space"));
  EXPECT_EQ(read_file(file_), "0123456789");
}

TEST_F(DurableFiles, RollsBackAnIncompleteAppend) {
  AppendOnlyFile file(file_, AppendOnlyFile::Past::kNone);
  file.append("one\n");
  {
    const FullDisk disk(6);
    EXPECT_THAT(error_of([&] { file.append("two\n"); }), HasSubstr(file_.string()));
    EXPECT_EQ(read_file(file_), "one\n");
  }
  file.append("three\n");
  file.sync();
  EXPECT_EQ(read_file(file_), "one\nthree\n");
}

TEST_F(DurableFiles, RemovesAnIncompleteLastLine) {
  const std::string long_line(10000, 'x');
  for (const std::string& whole : {std::string(), std::string("one\n"), long_line + '\n'})
    for (const std::string& part : {std::string(), std::string("tw"), long_line}) {
      write_file(file_, whole + part);
      AppendOnlyFile file(file_, AppendOnlyFile::Past::kWholeLines);
      file.append("next\n");
      EXPECT_TRUE(read_file(file_) == whole + "next\n");
    }
  EXPECT_THAT(error_of([&] { AppendOnlyFile(file_, AppendOnlyFile::Past::kNone); }),
              HasSubstr("File exists"));
}

TEST_F(DurableFiles, AppendsToAPipe) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  const FileDescriptor reader(::open(file_.c_str(), O_RDONLY | O_NONBLOCK));
  AppendOnlyFile file(file_, AppendOnlyFile::Past::kWholeLines);
  file.append("line\n");
  file.sync();
  std::string text(10, '\0');
  text.resize(static_cast<std::size_t>(::read(reader.number(), text.data(), text.size())));
  EXPECT_EQ(text, "line\n");
}

TEST_F(DurableFiles, CreatesMissingDirectories) {
  make_directories(root_ / "a" / "b" / "c/");
  make_directories(root_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(root_ / "a" / "b" / "c"));
  write_file(file_, "");
  EXPECT_THAT(error_of([&] { make_directories(file_ / "b"); }),
              HasSubstr("cannot create " + file_.string() + ": Not a directory"));
}

TEST_F(DurableFiles, ReportsEveryDiskFailure) {
  struct Case {
    const char* function;
    int calls;
    std::function<void(const fs::path& file)> act;  // `file` has a whole line and a partial one
  };
  const auto append = [](const fs::path& file) {
    AppendOnlyFile(file, AppendOnlyFile::Past::kWholeLines).sync();
  };
  const std::vector<Case> cases = {
      {"fsync", 2, [](const fs::path& file) { replace_file(file, "new"); }},
      {"rename", 1, [](const fs::path& file) { replace_file(file, "new"); }},
      {"fallocate", 1, [](const fs::path& file) { OutputFile(file.string() + "2", 10); }},
      {"fsync", 1, [](const fs::path& file) { OutputFile(file).sync(); }},
      {"ftruncate", 1, append},
      {"fdatasync", 1, append},
      {"fsync", 1,
       [](const fs::path& file) {
         AppendOnlyFile(file.string() + "2", AppendOnlyFile::Past::kNone);
       }},
      {"fsync", 1, [](const fs::path& file) { sync_directory(file.parent_path()); }},
      // The parent of the folder is synced, too.
      {"fsync", 3, [](const fs::path& file) { make_directories(file.parent_path() / "a" / "b"); }}};
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (int n = 1; n <= cases[i].calls + 1; ++n) {
      const test::TemporaryDirectory directory;
      write_file(directory.path() / "file", "one\ntw");
      const FailingCall call(cases[i].function, n);
      const bool fails = n <= cases[i].calls;
      EXPECT_THAT(error_of([&] { cases[i].act(directory.path() / "file"); }),
                  HasSubstr(fails ? "Input/output error" : "no error"))
          << i << ", " << n;
      EXPECT_EQ(call.has_failed(), fails) << i << ", " << n;
    }
}

TEST_F(DurableFiles, ToleratesUnsupportedFileSystemCalls) {
  {
    const FailingCall call("fallocate", 1, EOPNOTSUPP);
    OutputFile(file_, 10);
    EXPECT_EQ(fs::file_size(file_), 10U);
  }
  const FailingCall call("fsync", 1, EINVAL);
  EXPECT_NO_THROW(sync_directory(root_));
  EXPECT_TRUE(call.has_failed());
}

}  // namespace
}  // namespace muo
