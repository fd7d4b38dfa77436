// Choices that depend on the available memory: --device-batch-size auto, which is the largest that
// fits, and --save-mode auto.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/memory/memory_plan.h"
#include "support/errors.h"
#include "trainer/infer/inference.h"
#include "trainer/run/backend.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_memory.h"

namespace muo::trainer {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TrainOptions two_devices() {
  TrainOptions options;
  options.model.preset = ModelPreset::kPlain;
  options.devices.backend = Backend::kHost;
  options.devices.count = 2;
  options.model.depth = 2;
  options.model.set(&model::GptConfig::seq_len, 256);
  options.batch.total_tokens = 2 * 256 * 12;  // 12 rows per device
  return options;
}

RunConfig fitted(const TrainOptions& options, std::int64_t available) {
  RunConfig config = resolve(options, data::corpus_without_tokens(options.data));
  fit_memory(config, available);
  return config;
}

std::int64_t bytes_of(std::int64_t batch, TrainOptions options = two_devices()) {
  options.batch.device_rows = batch;
  return plan_run_memory(resolve(options, data::corpus_without_tokens(options.data))).rank_bytes(2);
}

TEST(FitBatch, IsTheLargestDivisorThatFits) {
  const RunConfig roomy = fitted(two_devices(), std::int64_t{1} << 40);
  EXPECT_EQ(roomy.step.batch, 12);
  EXPECT_THAT(roomy.notes, Not(Contains(HasSubstr("instead"))));
  for (const auto& [limit_of, smaller] : {std::pair{12, 6}, {6, 4}, {4, 3}, {3, 2}, {2, 1}}) {
    EXPECT_EQ(fitted(two_devices(), bytes_of(limit_of)).step.batch, limit_of);
    const RunConfig config = fitted(two_devices(), bytes_of(limit_of) - 1);
    EXPECT_EQ(config.step.batch, smaller);
    EXPECT_EQ(config.step.accumulation, 12 / smaller);
    EXPECT_EQ(config.rows_per_step(), 24);
    EXPECT_EQ(config.tokens_per_step(), roomy.tokens_per_step());
    EXPECT_EQ(config.step.batch, smaller);
    EXPECT_THAT(config.notes, Contains(HasSubstr(std::to_string(smaller) + " rows instead")));
  }
  // 8 divides the 24 rows of a step, but not the 12 rows of the micro-step that is tried first.
  TrainOptions more = two_devices();
  more.batch.total_tokens = 2 * 256 * 24;
  ASSERT_EQ(fitted(more, std::int64_t{1} << 40).step.batch, 12);
  EXPECT_EQ(fitted(more, bytes_of(12, more) - 1).step.batch, 8);
}

TEST(FitBatch, LeavesAnExplicitBatchAndRefusesWhatCannotFit) {
  TrainOptions options = two_devices();
  options.batch.device_rows = 12;
  EXPECT_EQ(fitted(options, 1).step.batch, 12);
  const RunConfig config = fitted(two_devices(), 1);
  EXPECT_EQ(config.step.batch, 1);
  EXPECT_THROW(require_memory(config, plan_run_memory(config), 1), InputError);
}

// Evaluation without training.
TEST(FitEvalBatch, HasAsManyTokensAsTrainingOrAsExistOrFit) {
  static std::int64_t gpu_bytes = 0;
  static const BackendPlugin plugin{.total_memory = [](int) { return gpu_bytes; }};
  model::GptConfig config{.vocab_size = 32768, .seq_len = 512};
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  const auto fitting = [&](const GroupOptions& group, std::int64_t rows) {
    return fit_eval_batch(config, params, rows, group);
  };
  EXPECT_EQ(fitting({.world = 2}, 1000), 8);
  EXPECT_EQ(fitting({.world = 2}, 5), 3);
  EXPECT_EQ(config.head_chunk_bytes, model::kHostHeadChunk);

  const GroupOptions gpu{.plugin = &plugin};
  const auto with_room_for = [&](std::int64_t batch, std::int64_t less = 0) {
    gpu_bytes = plan_inference_memory(config, params, {.eval = batch}, 0, 1).bytes +
                kLibraryMemory + kContextMemory - less;
    return fitting(gpu, 1000);
  };
  gpu_bytes = std::int64_t{80} << 30;
  EXPECT_EQ(fitting(gpu, 1000), 128);
  EXPECT_EQ(fitting(gpu, 5), 5);
  EXPECT_GT(config.head_chunk_bytes, model::kHostHeadChunk);
  EXPECT_EQ(with_room_for(128), 128);
  EXPECT_EQ(with_room_for(128, 1), 64);
  EXPECT_EQ(with_room_for(1), 1);
  EXPECT_GT(config.head_chunk_bytes, model::kHostHeadChunk);
  EXPECT_EQ(with_room_for(1, 1), 1);
  EXPECT_EQ(config.head_chunk_bytes, model::kHostHeadChunk);
}

// Activations are half as large in bf16; only the masters' shards are additional.
TEST(RunMemory, IsLessInBf16) {
  TrainOptions options = two_devices();
  options.data.vocab_size = 2000;  // logits fit into one chunk in both
  options.sharding.replicas = optim::ReplicaAt::kEveryRank;
  const auto bytes = [&](DType dtype) {
    options.numbers.dtype = dtype;
    return plan_run_memory(resolve(options, data::corpus_without_tokens(options.data))).bytes;
  };
  EXPECT_LT(bytes(DType::kBF16), bytes(DType::kF32));
}

TEST(RunMemory, OfTheStepAloneExcludesEvaluationAndDecoder) {
  RunConfig config = resolve(two_devices(), data::corpus_without_tokens(two_devices().data));
  const auto others = [&] {
    const MemoryPlan plan = plan_run_memory(config);
    return std::ranges::count_if(plan.specs, [](const TensorSpec& spec) {
      return spec.name.starts_with("eval.") || spec.name.starts_with("decode.") ||
             spec.name == "token_bytes";
    });
  };
  EXPECT_GT(others(), 10);
  config.step_only = true;
  EXPECT_EQ(others(), 0);
}

// --save-mode around the limit of the available memory.
TEST(BackgroundSaves, AreChosenWhereTheirMemoryFits) {
  constexpr std::int64_t kPlanned = 700;
  constexpr std::int64_t kStaging = 30;
  RunConfig config = resolve(two_devices(), data::corpus_without_tokens(two_devices().data));
  const auto choose = [&](std::optional<SaveMode> mode, std::int64_t available,
                          std::vector<std::string>& notes) {
    config.options.save.mode = mode;
    return choose_background_saves(config, kPlanned, kStaging, available, notes);
  };
  std::vector<std::string> notes;
  EXPECT_TRUE(choose({}, 1460, notes));
  EXPECT_TRUE(choose(SaveMode::kBackground, 1460, notes));
  EXPECT_FALSE(choose(SaveMode::kWait, 1460, notes));
  EXPECT_THAT(notes, testing::IsEmpty());
  EXPECT_FALSE(choose({}, 1459, notes));
  EXPECT_THAT(notes, testing::ElementsAre(HasSubstr("training will wait for each checkpoint")));
  EXPECT_FALSE(choose(SaveMode::kWait, 1459, notes));
  EXPECT_THROW(choose(SaveMode::kBackground, 1459, notes), InputError);
  // The memory planned on a GPU is not host memory.
  static const BackendPlugin plugin{};
  config.group.plugin = &plugin;
  EXPECT_TRUE(choose({}, 60, notes));
  EXPECT_FALSE(choose({}, 59, notes));
}

TEST(BackgroundSaves, AreOnlyForSavesBetweenSteps) {
  RunConfig config = resolve(two_devices(), data::corpus_without_tokens(two_devices().data));
  std::vector<std::string> notes;
  const auto stages = [&] { return choose_background_saves(config, 0, 1, 1 << 20, notes); };
  config.options.save.every = config.options.evaluation.every = -1;
  EXPECT_FALSE(stages());
  config.options.save.every = 10;
  EXPECT_TRUE(stages());
  config.options.save.every = -1;
  config.options.save.minutes = 5;
  EXPECT_TRUE(stages());
  config.options.save.minutes = -1;
  config.options.evaluation.every = 10;
  EXPECT_TRUE(stages());  // before a long evaluation
  config.options.save.before_eval = -1;
  EXPECT_FALSE(stages());
}

TEST(RequireMemory, RefusesWithNumbersAndOptions) {
  RunConfig config;
  config.group.world = 3;
  config.step.batch = 7;
  MemoryPlan plan;
  plan.bytes = std::int64_t{1} << 30;
  EXPECT_NO_THROW(require_memory(config, plan, plan.bytes));
  const std::string error =
      test::message_of<InputError>([&] { require_memory(config, plan, plan.bytes - 1); });
  EXPECT_THAT(error,
              HasSubstr("3 devices need 3.00 GiB (1.00 GiB each), but 3.00 GiB are available"));
  EXPECT_THAT(error, HasSubstr("--device-batch-size (now 7)"));
  plan.common_bytes = std::int64_t{3} << 30;  // 1 GiB per rank
  EXPECT_THROW(require_memory(config, plan, 2 * plan.bytes - 1), InputError);
  EXPECT_NO_THROW(require_memory(config, plan, 2 * plan.bytes));
  plan.common_bytes = 0;
  plan.bytes = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(require_memory(config, plan, plan.bytes - 1), InputError);
}

TEST(RequireMemory, CountsTheBatchesThatAreReadAhead) {
  TrainOptions options = two_devices();
  options.batch.total_tokens = std::int64_t{1} << 40;
  const RunConfig config = resolve(options, data::corpus_without_tokens(options.data));
  const std::int64_t bytes = kLoaderSlots * 2 * 4 * (std::int64_t{1} << 40);  // inputs, targets
  EXPECT_NO_THROW(require_batches(config, bytes));
  EXPECT_THAT(
      test::message_of<InputError>([&] { require_batches(config, bytes - 1); }),
      HasSubstr("--total-batch-size 1099511627776: batches of 3 steps, which are read ahead, "
                "take 24576.00 GiB of host memory"));
}

TEST(AvailableMemory, IsPositiveHere) {
  EXPECT_GT(available_memory().bytes, std::int64_t{1} << 20);
  EXPECT_LT(available_memory().bytes, std::int64_t{1} << 50);
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Two GPUs of 8 GiB, with 6 and 5 GiB free.
const BackendPlugin& two_gpus() {
  static const BackendPlugin plugin{
      .available_memory = [](int index) { return (index == 1 ? 5 : 6) * kGiB; },
      .total_memory = [](int /*index*/) { return 8 * kGiB; }};
  return plugin;
}

TEST(AvailableMemory, IsSharedByTheRanksOfADeviceWithoutLibraryMemory) {
  EXPECT_LT(available_memory_per_rank({.world = 1 << 20}), kGiB);
  EXPECT_EQ(available_memory_per_rank({.world = 4, .plugin = &two_gpus(), .ranks_per_device = 2}),
            (5 * kGiB - kLibraryMemory) / 2);
  EXPECT_EQ(available_memory_per_rank({.world = 1, .plugin = &two_gpus()}),
            6 * kGiB - kLibraryMemory);
  const BackendPlugin full{.available_memory = [](int /*index*/) { return kLibraryMemory - 1; }};
  EXPECT_EQ(available_memory_per_rank({.world = 1, .plugin = &full}), 0);
}

// Otherwise the batch, and with it rounding, would depend on what else uses the GPU.
TEST(MemoryToPlan, DependsOnTotalMemoryWhateverIsFree) {
  EXPECT_EQ(memory_to_plan_per_rank({.world = 4, .plugin = &two_gpus(), .ranks_per_device = 2}),
            (8 * kGiB - kLibraryMemory - kContextMemory) / 2);
  // Sizes chosen for an empty GPU must fit: its context takes less than the part reserved for it.
  EXPECT_LT(memory_to_plan_per_rank({.world = 1, .plugin = &two_gpus()}),
            8 * kGiB - kLibraryMemory - kGiB / 2);
}

TEST(RequireMemory, NamesTheMemoryForLibrariesOfAGpu) {
  RunConfig config;
  config.group = {.world = 1, .plugin = &two_gpus()};
  MemoryPlan plan;
  plan.bytes = 5 * kGiB;
  const std::string error = test::message_of<InputError>(
      [&] { require_memory(config, plan, available_memory_per_rank(config.group)); });
  EXPECT_THAT(error, HasSubstr("4.50 GiB are available (each GPU's free memory less 1.50 GiB for "
                               "the kernels and buffers of CUDA's libraries): give a smaller"));
}

}  // namespace
}  // namespace muo::trainer
