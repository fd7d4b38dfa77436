#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"
#include "system/run_files.h"

namespace muo {
namespace {

// Runs as scripts/train.sh starts them, for two steps of a smaller model: any number of devices
// must work.
TEST(QuickConfig, TrainsOnAnyNumberOfDevices) {
  const test::TemporaryDirectory directory;
  test::write_text(directory.path() / "text.txt", 2000);
  constexpr std::int64_t kTarget = 4096, kRow = 256;
  for (const std::int64_t devices : {1, 2, 3, 5, 7}) {
    const std::string run = directory.path() / std::to_string(devices);
    const test::Outcome outcome = test::run_program(
        "train --config " + test::source_directory() + "/configs/quick.toml --data " +
        (directory.path() / "text.txt").string() + " --backend host --devices " +
        std::to_string(devices) +
        " --depth 1 --num-iterations 2 --eval-every -1 --sample-every -1 --out " + run);
    ASSERT_EQ(outcome.code, 0) << devices << " devices: " << outcome.err;
    const std::int64_t tokens = test::metrics_of(run, "train").at(0).at("tokens");
    EXPECT_EQ(tokens % (devices * kRow), 0) << devices;
    EXPECT_LE(std::abs(tokens - kTarget) * 2, devices * kRow) << devices;
  }
}

TEST(QuickConfig, IsTheDefaultOnACpu) {
  using testing::HasSubstr;
  using testing::Not;
  const test::TemporaryDirectory directory;
  test::write_file(directory.path() / "text.txt", std::string(900, 'a'));
  const std::string data =
      " --data " + (directory.path() / "text.txt").string() + " --backend host ";
  const std::string note = "from configs/quick.toml", step = "Step: 4096 tokens = 2 x ";
  const auto plan = [&](const std::string& options) {
    const test::Outcome outcome = test::run_program("plan --devices 2 --backend host " + options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_THAT(plan(""), AllOf(HasSubstr(note), HasSubstr(step)));
  EXPECT_THAT(plan("--max-seq-len 128"), AllOf(HasSubstr(note), HasSubstr(step), HasSubstr("T 128"),
                                               HasSubstr("horizon: 320 steps")));
  for (const char* horizon :
       {"--num-iterations 500", "--target-flops 1e15", "--target-param-data-ratio 2"})
    EXPECT_THAT(plan(horizon),
                AllOf(HasSubstr(note), HasSubstr(step), Not(HasSubstr("horizon: 320 steps"))))
        << horizon;
  const std::string config = test::source_directory() + "/configs/d4-cpu.toml";
  for (const std::string& asked :
       {std::string("--depth 4"), std::string("--n-layer 4 --num-iterations 3"),
        std::string("--n-embd 64 --n-head 1"), "--config " + config})
    EXPECT_THAT(plan(asked), Not(HasSubstr(note))) << asked;
  const std::string laws = "sizes follow nanochat's laws; --config quick.toml";
  EXPECT_THAT(plan("--depth 8"), testing::ContainsRegex("Time: about [0-9a-z]+, at .*: " + laws));
  EXPECT_THAT(plan(""), AllOf(HasSubstr("Time: about "), Not(HasSubstr(laws))));
  const std::string small =
      data +
      "--max-seq-len 32 --total-batch-size 32 --devices 1 --warmup-steps 0 --eval-every -1 "
      "--sample-every -1 --num-iterations 3 --out ";
  const std::string run = (directory.path() / "run").string();
  const test::Outcome bare = test::run_program("train" + small + run);
  EXPECT_THAT(bare.out,
              AllOf(HasSubstr(note), HasSubstr("step 3/3"), HasSubstr("expected: about ")));
  EXPECT_THAT(test::run_program("sweep --matrix-lr 0.1" + small + run + "s").out, HasSubstr(note));
}

}  // namespace
}  // namespace muo
