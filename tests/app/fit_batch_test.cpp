// What is chosen by the memory there is: --device-batch-size auto, the largest that fits, and
// --save-mode auto.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "app/backend.h"
#include "app/run_memory.h"
#include "support/errors.h"

namespace muo {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TrainOptions two_devices() {
  TrainOptions options;
  options.model = "plain";
  options.backend = "host";
  options.devices = 2;
  options.depth = 2;
  options.max_seq_len = 256;
  options.total_batch_size = 2 * 256 * 12;  // 12 rows a device
  return options;
}

RunConfig fitted(const TrainOptions& options, std::int64_t available) {
  RunConfig config = resolve(options, vocabulary_only(options));
  fit_batch(config, available);
  return config;
}

std::int64_t bytes_of(std::int64_t batch) {
  TrainOptions options = two_devices();
  options.device_batch_size = batch;
  return plan_run_memory(resolve(options, vocabulary_only(options))).rank_bytes(2);
}

TEST(FitBatch, IsTheLargestDivisorThatFits) {
  const RunConfig roomy = fitted(two_devices(), std::int64_t{1} << 40);
  EXPECT_EQ(roomy.batch, 12);
  EXPECT_THAT(roomy.notes, Not(Contains(HasSubstr("instead"))));
  for (const auto& [limit_of, smaller] : {std::pair{12, 6}, {6, 4}, {4, 3}, {3, 2}, {2, 1}}) {
    EXPECT_EQ(fitted(two_devices(), bytes_of(limit_of)).batch, limit_of);
    const RunConfig config = fitted(two_devices(), bytes_of(limit_of) - 1);
    EXPECT_EQ(config.batch, smaller);
    EXPECT_EQ(config.accumulation, 12 / smaller);
    EXPECT_EQ(config.rows_per_step(), 24);
    EXPECT_EQ(config.total_batch_tokens, roomy.total_batch_tokens);
    EXPECT_EQ(config.options.device_batch_size, smaller);
    EXPECT_THAT(config.notes, Contains(HasSubstr(std::to_string(smaller) + " rows instead")));
  }
}

TEST(FitBatch, LeavesAnExplicitBatchAndRefusesWhatCannotFit) {
  TrainOptions options = two_devices();
  options.device_batch_size = 12;
  EXPECT_EQ(fitted(options, 1).batch, 12);
  const RunConfig config = fitted(two_devices(), 1);
  EXPECT_EQ(config.batch, 1);
  EXPECT_THROW(require_memory(config, plan_run_memory(config), 1), InputError);
}

// Activations are half as large, and there is nothing that only bf16 needs but the masters' shards.
TEST(RunMemory, IsLessInBf16) {
  TrainOptions options = two_devices();
  options.vocab_size = 2000;  // logits that are one chunk in either
  options.replicas = "own";
  const auto bytes = [&](DType dtype) {
    options.dtype = dtype;
    return plan_run_memory(resolve(options, vocabulary_only(options))).bytes;
  };
  EXPECT_LT(bytes(DType::kBF16), bytes(DType::kF32));
}

// --save-mode, around the border of what fits.
TEST(BackgroundSaves, AreChosenWhereTheirMemoryFits) {
  constexpr std::int64_t kPlanned = 700;
  constexpr std::int64_t kStaging = 30;
  RunConfig config = resolve(two_devices(), vocabulary_only(two_devices()));
  const auto choose = [&](const std::string& mode, std::int64_t available,
                          std::vector<std::string>& notes) {
    config.options.save_mode = mode;
    return choose_background_saves(config, kPlanned, kStaging, available, notes);
  };
  std::vector<std::string> notes;
  EXPECT_TRUE(choose("auto", 1460, notes));
  EXPECT_TRUE(choose("background", 1460, notes));
  EXPECT_FALSE(choose("wait", 1460, notes));
  EXPECT_THAT(notes, testing::IsEmpty());
  EXPECT_FALSE(choose("auto", 1459, notes));
  EXPECT_THAT(notes, testing::ElementsAre(HasSubstr("training waits for each checkpoint")));
  EXPECT_FALSE(choose("wait", 1459, notes));
  EXPECT_THROW(choose("background", 1459, notes), InputError);
  // What a GPU plans for is not host memory.
  static const BackendPlugin plugin{};
  config.group.plugin = &plugin;
  EXPECT_TRUE(choose("auto", 60, notes));
  EXPECT_FALSE(choose("auto", 59, notes));
}

TEST(BackgroundSaves, AreForSavesThatTrainingGoesOnAfter) {
  RunConfig config = resolve(two_devices(), vocabulary_only(two_devices()));
  std::vector<std::string> notes;
  const auto stages = [&] { return choose_background_saves(config, 0, 1, 1 << 20, notes); };
  config.save_every = config.eval_every = 0;
  EXPECT_FALSE(stages());
  config.save_every = 10;
  EXPECT_TRUE(stages());
  config.save_every = 0;
  config.options.save_minutes = 5;
  EXPECT_TRUE(stages());
  config.options.save_minutes = -1;
  config.eval_every = 10;
  EXPECT_TRUE(stages());  // before an evaluation that takes long
  config.options.save_before_eval = -1;
  EXPECT_FALSE(stages());
}

TEST(RequireMemory, RefusesWithNumbersAndOptions) {
  RunConfig config;
  config.world = 3;
  config.batch = 7;
  MemoryPlan plan;
  plan.bytes = std::int64_t{1} << 30;
  EXPECT_NO_THROW(require_memory(config, plan, plan.bytes));
  const std::string error =
      test::message_of<InputError>([&] { require_memory(config, plan, plan.bytes - 1); });
  EXPECT_THAT(error, HasSubstr("3 devices need 3.00 GiB (1.00 GiB each), 3.00 GiB are available"));
  EXPECT_THAT(error, HasSubstr("--device-batch-size (now 7)"));
  plan.common_bytes = std::int64_t{3} << 30;  // a GiB each
  EXPECT_THROW(require_memory(config, plan, 2 * plan.bytes - 1), InputError);
  EXPECT_NO_THROW(require_memory(config, plan, 2 * plan.bytes));
  plan.common_bytes = 0;
  plan.bytes = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(require_memory(config, plan, plan.bytes - 1), InputError);
}

TEST(AvailableMemory, IsPositiveHere) {
  EXPECT_GT(available_memory(), std::int64_t{1} << 20);
  EXPECT_LT(available_memory(), std::int64_t{1} << 50);
}

TEST(AvailableMemory, IsSharedByTheRanksOfADevice) {
  EXPECT_LT(available_memory_per_rank({.world = 1 << 20}), std::int64_t{1} << 30);
  const BackendPlugin plugin{
      .available_memory = [](int index) { return std::int64_t{index == 1 ? 10 : 20}; }};
  EXPECT_EQ(available_memory_per_rank({.world = 4, .plugin = &plugin, .ranks_per_device = 2}), 5);
  EXPECT_EQ(available_memory_per_rank({.world = 1, .plugin = &plugin}), 20);
}

}  // namespace
}  // namespace muo
