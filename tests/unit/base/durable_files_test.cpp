#include "base/durable_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "support/files.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
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

TEST_F(DurableFiles, AFileIsReplacedAsAWholeOrNotAtAll) {
  replace_file(file_, "first");
  EXPECT_EQ(read_file(file_), "first");
  {
    const FullDisk disk(10);
    EXPECT_THAT(error_of([&] { replace_file(file_, std::string(100, 'x')); }),
                AllOf(HasSubstr("cannot write " + file_.string()), HasSubstr("free space")));
  }
  EXPECT_EQ(read_file(file_), "first");
  EXPECT_THAT(entries_of(root_), ElementsAre(file_));
  EXPECT_THAT(error_of([&] { replace_file(root_ / "none" / "file", ""); }),
              HasSubstr("No such file or directory"));
}

TEST_F(DurableFiles, WhatCannotBeAppendedWholeIsTakenBack) {
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

TEST_F(DurableFiles, ALastLineWithoutItsEndIsCutOff) {
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

TEST_F(DurableFiles, APipeIsAppendedTo) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  const FileDescriptor reader(::open(file_.c_str(), O_RDONLY | O_NONBLOCK));
  AppendOnlyFile file(file_, AppendOnlyFile::Past::kWholeLines);
  file.append("line\n");
  file.sync();
  std::string text(10, '\0');
  text.resize(static_cast<std::size_t>(::read(reader.number(), text.data(), text.size())));
  EXPECT_EQ(text, "line\n");
}

TEST_F(DurableFiles, DirectoriesAreMadeAsFarAsTheyAreMissing) {
  make_directories(root_ / "a" / "b" / "c/");
  make_directories(root_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(root_ / "a" / "b" / "c"));
  write_file(file_, "");
  EXPECT_THAT(error_of([&] { make_directories(file_ / "b"); }),
              HasSubstr("cannot create " + file_.string() + ": Not a directory"));
}

}  // namespace
}  // namespace muo
