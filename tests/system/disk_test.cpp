#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/checkpoint_state.h"
#include "support/program.h"
#include "system/training_run.h"

// Runs on full or read-only disks: small in-memory file systems that are visible only to these
// runs.
namespace muo {
namespace {

namespace fs = std::filesystem;
using test::names_in;
using test::Outcome;
using test::run_program;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A checkpoint of these runs takes 5.3 MB.
const std::string kRun =
    "--num-iterations 16 --n-embd 192 --total-batch-size 3072 --save-every 2 --eval-every -1 ";

class Disk : public Training {
 protected:
  void SetUp() override {
    // NOLINTNEXTLINE(concurrency-mt-unsafe, cert-env33-c): one thread, no input
    if (std::system("unshare --mount mount -t tmpfs none /mnt 2>/dev/null") != 0)
      GTEST_SKIP() << "this process may not mount a file system: run it as root";
    fs::create_directories(disk_);
  }

  // A prefix for a command, so that it sees the disk at disk_. `meanwhile` runs in a shell beside
  // it. The command's output goes to path("log"), and the final contents of the disk are copied to
  // path("left").
  [[nodiscard]] std::string with_disk(const std::string& size, const std::string& before,
                                      const std::string& meanwhile = "") const {
    return "unshare --mount sh -c 'mount -t tmpfs -o size=" + size + " none " + disk_.string() +
           " && cd " + disk_.string() + " && " + before + " && { \"$@\" >" + log_ + " & pid=$!; " +
           (meanwhile.empty() ? "" : meanwhile + "; ") + "wait $pid; code=$?; cp -a . " +
           path("left").string() + "; exit $code; }' sh";
  }
  [[nodiscard]] std::string command(const std::string& more) const {
    return options("disk/run", kRun + more);
  }

  // Only whole checkpoints remain, and nothing else.
  [[nodiscard]] std::vector<std::int64_t> steps_left() const {
    std::vector<std::int64_t> steps;
    for (const trainer::FoundCheckpoint& found : trainer::find_checkpoints(path("left") / "run")) {
      EXPECT_NO_THROW(static_cast<void>(trainer::Checkpoint(found.path)));
      steps.push_back(found.step);
    }
    EXPECT_EQ(names_in(path("left") / "run" / "checkpoints").size(), steps.size());
    std::ranges::sort(steps);
    return steps;
  }

  const fs::path disk_ = path("disk");
  const std::string log_ = path("log").string();
};

TEST_F(Disk, ThatIsFullEndsTheRunAndHarmsNoOlderCheckpoint) {
  for (const char* const mode : {"background", "wait"}) {
    const Outcome outcome =
        run_program(command("--save-mode " + std::string(mode)), with_disk("13m", "true"));
    EXPECT_EQ(outcome.code, 3) << mode;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("step 6 not saved: cannot reserve space for "),
                                   HasSubstr("No space left on device; free space or write")));
    EXPECT_THAT(steps_left(), ElementsAre(2, 4)) << mode;
    fs::remove_all(path("left"));
  }
}

TEST_F(Disk, ThatStaysFullIsReportedAtEverySaveAndTheLastMustSucceed) {
  const Outcome outcome = run_program(command("--on-save-error continue"), with_disk("8m", "true"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("checkpoint of step 16 not saved: cannot reserve space for "));
  const std::string log = test::read_file(log_);
  for (const char* const step : {"4", "6", "8", "10", "12", "14"})
    EXPECT_THAT(log, HasSubstr("warning: checkpoint of step " + std::string(step) + " not saved"));
  EXPECT_THAT(steps_left(), ElementsAre(2));
}

TEST_F(Disk, ThatHasSpaceAgainIsWrittenToAgain) {
  train("whole", kRun);
  const Outcome outcome =
      run_program(command("--on-save-error continue --keep-last 1"),
                  with_disk("16m", "head -c 8000000 /dev/zero >ballast",
                            test::until("grep -q \"step 4 not saved\" " + log_) + "rm ballast"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(test::read_file(log_), HasSubstr("warning: checkpoint of step 4 not saved"));
  EXPECT_THAT(steps_left(), ElementsAre(16));
  EXPECT_TRUE(tensors("left/run", 16) == tensors("whole", 16));
}

TEST_F(Disk, ThatBecomesReadOnlyEndsTheRunAndHarmsNoOlderCheckpoint) {
  // The run is paused meanwhile: a file opened between the two mounts would prevent the second one,
  // and a fast run would have ended before them.
  const std::string lock =
      "kill -STOP $pid; mount --bind run/checkpoints run/checkpoints; "
      "mount -o remount,bind,ro run/checkpoints; kill -CONT $pid";
  for (const char* const mode : {"background", "wait"}) {
    const Outcome outcome = run_program(
        command("--save-mode " + std::string(mode)),
        with_disk("100m", "true", test::until("[ -d run/checkpoints/step_00000002 ]") + lock));
    EXPECT_EQ(outcome.code, 3) << mode;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("not saved: cannot "),
                                   HasSubstr("Read-only file system; check the path")));
    const std::vector<std::int64_t> steps = steps_left();
    EXPECT_THAT(steps, testing::Contains(2)) << mode;
    EXPECT_LT(steps.size(), 8U);
    fs::remove_all(path("left"));
  }
}

// --save-mode auto, with and without enough memory for copies: the run sees a /proc/meminfo written
// by the test.
TEST_F(Disk, WithoutMemoryForCopiesTrainingWaitsForIt) {
  // Copies take 17 MB; a run without copies takes 6 MiB for the chunks in which it writes.
  std::string larger = kRun;
  larger.replace(larger.find("192"), 3, "384");
  train("whole", larger);
  const fs::path meminfo = path("meminfo");
  const auto run = [&](const std::string& out, std::int64_t available_mib) {
    test::write_file(meminfo, "MemAvailable: " + std::to_string(available_mib * 1024) + " kB\n");
    const Outcome outcome = run_program(options(out, larger),
                                        "unshare --mount sh -c 'mount --bind " + meminfo.string() +
                                            " /proc/meminfo && exec \"$@\"' sh");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(tensors(out, 16) == tensors("whole", 16));
    return outcome.out;
  };
  const std::string roomy = run("roomy", 4096);
  EXPECT_THAT(roomy, testing::Not(HasSubstr("training will wait for each checkpoint")));
  const std::size_t at = roomy.find(" MiB each");
  ASSERT_NE(at, std::string::npos);
  const std::int64_t planned = std::stoll(roomy.substr(roomy.rfind(' ', at - 1)));
  // Needed besides the tensors: 59 MiB (process_base() and kBaseSpread), and up to 2 MiB of
  // rounding.
  const std::string tight = run("tight", 2 * planned + 62);
  EXPECT_THAT(tight, HasSubstr("training will wait for each checkpoint"));
}

// Reading needs no write permission; training reports immediately that it lacks it.
TEST_F(Disk, ThatIsReadOnlyIsReadAndNotTrainedOn) {
  train("disk/run", "--save-every 10");
  const std::string read_only = "mount --bind . . && mount -o remount,bind,ro . && cd $PWD";
  const auto run = [&](const std::string& arguments) {
    return run_program(arguments, "unshare --mount sh -c 'cd " + disk_.string() + " && " +
                                      read_only + " && exec \"$@\"' sh");
  };
  const std::string checkpoint = " --checkpoint " + (disk_ / "run").string();
  for (const char* const reader :
       {"checkpoint inspect", "checkpoint verify", "sample --max-tokens 3", "eval"}) {
    const Outcome outcome = run(reader + checkpoint);
    EXPECT_EQ(outcome.code, 0) << reader << outcome.err;
  }
  for (const char* const out : {"disk/run", "disk/new"}) {
    const Outcome outcome = run(options(out, "--num-iterations 30 --resume auto"));
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("--out " + path(out).string()),
                                   HasSubstr("Read-only file system")));
  }
  const Outcome branch =
      run(options("elsewhere", "--num-iterations 30 --resume " + (disk_ / "run").string()));
  EXPECT_EQ(branch.code, 0) << branch.err;
}

}  // namespace
}  // namespace muo
