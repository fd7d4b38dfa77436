#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/sanitized.h"
#include "system/training_run.h"

// Sharding and recomputation, as selected by a user, do not change the run.
namespace muo {
namespace {

using test::Outcome;
using test::run_program;
using testing::HasSubstr;

class MemoryModes : public Training {
 protected:
  // One micro-step, so that every mode reduces gradients once.
  [[nodiscard]] static std::string mode(const std::string& more) {
    return "--model nanochat --depth 2 --device-batch-size 8 --devices 3 --sample-every 10 "
           "--verify-sync-every 5 --dtype bf16 " +
           more;
  }
};

TEST_F(MemoryModes, GiveTheSameLossesEvaluationsSamplesAndCheckpoints) {
  constexpr int kSteps = test::kSanitized ? 10 : 20;
  const std::string steps = " --num-iterations " + std::to_string(kSteps);
  train("optimizer", mode("--shard optimizer") + steps);
  for (const char* what : {"--shard gradients", "--shard weights",
                           "--shard weights --strategy balanced --recompute mlp",
                           "--shard weights --graph off", "--recompute block"}) {
    train("other", mode(what) + " --seed 42" + steps);
    EXPECT_EQ(losses("other"), losses("optimizer")) << what;
    EXPECT_EQ(metrics("other", "eval"), metrics("optimizer", "eval")) << what;
    EXPECT_EQ(metrics("other", "sample"), metrics("optimizer", "sample")) << what;
    EXPECT_TRUE(tensors("other", kSteps) == tensors("optimizer", kSteps)) << what;
    std::filesystem::remove_all(path("other"));
  }
}

TEST_F(MemoryModes, ARunResumesInAnother) {
  train("whole", mode("--shard weights --save-every 7"));
  const std::string resume = " --resume " +
                             trainer::checkpoint_directory(path("whole"), 7).string() +
                             " --num-iterations 20";
  train("optimizer", mode("--shard optimizer") + resume);
  EXPECT_TRUE(tensors("optimizer", 20) == tensors("whole", 20));
  train("back", mode("--shard weights --strategy all_to_all") + " --resume " +
                    trainer::checkpoint_directory(path("whole"), 14).string());
  EXPECT_TRUE(tensors("back", 20) == tensors("whole", 20));
  // With another number of devices, sums have another order.
  train("two", mode("--shard weights") + resume + " --devices 2 --device-batch-size 12");
  EXPECT_NEAR(losses("two").front(), losses("whole")[7], 1e-3);
  EXPECT_NEAR(losses("two").back(), losses("whole").back(), 0.05);
}

TEST_F(MemoryModes, RejectImpossibleCombinations) {
  const auto error_of = [&](const std::string& more) {
    const Outcome outcome = run_program(options("none", more));
    EXPECT_EQ(outcome.code, 2) << more;
    EXPECT_FALSE(std::filesystem::exists(path("none"))) << more;
    return outcome.err;
  };
  EXPECT_THAT(error_of("--shard weights --strategy ddp"),
              HasSubstr("--shard weights: --strategy ddp cannot shard more than none: give that, "
                        "or another strategy"));
  EXPECT_THAT(error_of("--shard gradients --strategy allreduce_owner"),
              HasSubstr("cannot shard more than optimizer"));
  EXPECT_THAT(error_of("--shard none --strategy stacked"),
              HasSubstr("--shard none: --strategy stacked always shards more: give optimizer, or "
                        "--strategy ddp"));
  EXPECT_THAT(
      error_of("--shard weights --replicas common"),
      HasSubstr("--replicas common: with --shard weights there are no full replicas: give auto"));
  EXPECT_THAT(error_of("--shard gradients --replicas sharded"),
              HasSubstr("--replicas sharded: with --shard gradients weights are not sharded"));
  EXPECT_THAT(error_of("--shard zero3"), HasSubstr("'zero3' is unknown: give auto, none"));
}

}  // namespace
}  // namespace muo
