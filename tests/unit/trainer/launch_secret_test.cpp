#include "trainer/run/launch_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/check.h"
#include "support/errors.h"
#include "support/files.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/options/options.h"

namespace muo::trainer {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

Launch launch_of(int process) {
  return {.by = "torchrun", .process = process, .processes = 2, .id = "a/b c"};
}

std::string refusal_of(const SharedSecret& secret) {
  return test::message_of<InputError>([&] { static_cast<void>(secret.read()); });
}

TEST(SharedSecret, IsWrittenByProcess0ReadableByItsUserOnly) {
  const test::TemporaryDirectory directory;
  const fs::path folder = directory.path() / "runs", file = folder / ".launch-a_b_c-29501";
  const SharedSecret other(launch_of(1), folder, 29501);
  EXPECT_THAT(refusal_of(other), AllOf(HasSubstr(file.string()), HasSubstr("No such file"),
                                       HasSubstr("export MUO_STORE_TOKEN=")));
  {
    const SharedSecret first(launch_of(0), folder, 29501);
    EXPECT_EQ(first.read().size(), 64U);
    EXPECT_EQ(other.read(), first.read());
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    const SharedSecret restarted(launch_of(0), folder, 29501);  // the file already exists
    EXPECT_NE(restarted.read(), first.read());
    EXPECT_EQ(other.read(), restarted.read());
  }
  EXPECT_FALSE(fs::exists(file));
}

TEST(SharedSecret, IsNotReadFromFilesThatOthersMayHavePlanted) {
  const test::TemporaryDirectory folder;
  const fs::path file = folder.path() / ".launch-a_b_c-1", target = folder.path() / "target";
  const SharedSecret secret(launch_of(1), folder.path(), 1);
  const auto write = [](const fs::path& path, std::size_t bytes) {
    test::write_file(path, std::string(bytes, 'x'));
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  };
  write(target, 64);
  fs::create_symlink(target, file);
  EXPECT_THAT(refusal_of(secret), HasSubstr("cannot be read"));
  fs::remove(file);
  write(file, 64);
  EXPECT_EQ(secret.read(), std::string(64, 'x'));
  for (const mode_t mode : {0640U, 0604U, 0620U}) {
    ASSERT_EQ(::chmod(file.c_str(), mode), 0);
    EXPECT_THAT(refusal_of(secret), HasSubstr("is not private to this user"));
  }
  write(file, 31);
  EXPECT_THAT(refusal_of(secret), HasSubstr("is incomplete"));
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(secret), HasSubstr("is not private to this user"));
}

TEST(SharedSecret, OfAnotherUserIsRejected) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const test::TemporaryDirectory folder;
  const fs::path file = folder.path() / ".launch-a_b_c-1";
  test::write_file(file, std::string(64, 'x'));
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  EXPECT_THAT(refusal_of(SharedSecret(launch_of(1), folder.path(), 1)),
              HasSubstr("is not private to this user"));
}

TEST(SharedSecret, IsTheVariableIfThatIsSet) {
  const test::TemporaryDirectory folder;
  for (const int process : {0, 1}) {
    Launch launch = launch_of(process);
    launch.secret = "of the variable";
    EXPECT_EQ(SharedSecret(launch, folder.path(), 1).read(), "of the variable");
    EXPECT_EQ(SharedSecret(launch, {}, 1).read(), "of the variable");
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_THAT(test::message_of<InputError>([] { SharedSecret(launch_of(1), {}, 1); }),
              HasSubstr("MUO_STORE_TOKEN"));
}

TEST(SharedSecret, IsBesideTheRunDirectory) {
  const test::TemporaryDirectory directory;
  TrainOptions options;
  EXPECT_EQ(folder_of_run(options), "runs");
  options.run.resume = "auto";
  EXPECT_EQ(folder_of_run(options), "runs");
  options.run.out = (directory.path() / "a/b/").string();
  EXPECT_EQ(folder_of_run(options), directory.path() / "a");
  options.run.out = "alone";
  EXPECT_EQ(folder_of_run(options), fs::current_path());
}

}  // namespace
}  // namespace muo::trainer
