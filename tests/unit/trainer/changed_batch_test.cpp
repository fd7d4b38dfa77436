#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "support/command_line.h"
#include "support/errors.h"
#include "support/files.h"
#include "trainer/run/run_config.h"

// Batches that change: of a resumed run (kept, derived anew, or rejected), and during a run.
namespace muo::trainer {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kLength = 256;  // tokens of a row of the plain model

TrainOptions plain(std::int64_t devices) {
  TrainOptions options;
  options.model.preset = ModelPreset::kPlain;
  options.devices.backend = Backend::kHost;
  options.devices.count = devices;
  return options;
}

RunConfig resolved(const TrainOptions& options) {
  return resolve(options, data::corpus_without_tokens(options.data));
}

TEST(ResumedRun, KeepsItsBatchIfItFits) {
  const auto batch_of = [](std::int64_t devices, const BatchOptions& batch) {
    TrainOptions options = plain(devices);
    options.batch = batch;
    const RunConfig run = resolved(options);
    return std::pair(run.step.batch, run.rows_per_step());
  };
  using Batch = std::pair<std::int64_t, std::int64_t>;  // rows per device, and per step
  BatchOptions given{.total_tokens = 24 * kLength, .before = {.world = 2, .device_rows = 3}};
  EXPECT_EQ(batch_of(2, given), Batch(3, 24));
  EXPECT_EQ(batch_of(1, given), Batch(12, 24)) << "the largest that divide, as for a new run";
  given.total_tokens = 8 * kLength;
  EXPECT_EQ(batch_of(2, given), Batch(4, 8));
  given.device_rows = 2;
  EXPECT_EQ(batch_of(2, given), Batch(2, 8));

  const BatchOptions automatic{
      .target_tokens = 11 * kLength,
      .before = {.world = 2, .device_rows = 5, .total_tokens = 10 * kLength}};
  EXPECT_EQ(batch_of(2, automatic), Batch(5, 10)) << "though 12 are as near";
  EXPECT_EQ(batch_of(1, automatic), Batch(10, 10));
  EXPECT_EQ(batch_of(3, automatic), Batch(4, 12));
}

TEST(ResumedRun, CountsTheEarlierTraining) {
  TrainOptions options = plain(2);
  options.batch.total_tokens = 512;
  options.batch.iterations = 10;
  const TrainedSoFar trained{.steps = 4, .rows = 20, .tokens = 20 * kLength};
  const auto going_on = [&] {
    RunConfig run = resolved(options);
    continue_from(run, trained);
    return run;
  };
  const RunConfig run = going_on();
  EXPECT_EQ(run.rows_before(4), 20);
  EXPECT_EQ(run.rows_before(7), 26);
  EXPECT_EQ(run.token_count().before(7), 26 * kLength);
  EXPECT_EQ(run.tokens_left(), 6 * 512);
  EXPECT_EQ(run.horizon_tokens(), 32 * kLength);
  options.batch.iterations.reset();
  const RunConfig by_ratio = going_on();
  EXPECT_EQ(by_ratio.iterations(), 4 + (by_ratio.targets.tokens - 20 * kLength) / 512);
  EXPECT_EQ(by_ratio.hyper.warmdown_steps,
            std::llrint(0.65 * static_cast<double>(by_ratio.iterations())));
  EXPECT_EQ(std::ranges::count_if(by_ratio.notes,
                                  [](const auto& note) { return note.starts_with("num-iter"); }),
            1);
  options.batch.target_flops = 100.6 * run.flops_per_token * 512;
  EXPECT_EQ(going_on().iterations(), 95) << "10 of them were trained in 4 steps";
}

TEST(ResumedRun, ReadsItsPreviousBatchFromItsFile) {
  const test::TemporaryDirectory run;
  std::filesystem::create_directories(run.path() / "checkpoints/step_00000001");
  test::write_file(run.path() / "config.toml",
                   "data = ['text']\nmax-seq-len = 32\ndevice-batch-size = 2\n"
                   "total-batch-size = 256\ntarget-batch-size = 250\nbackend = 'cuda'\n"
                   "devices = 2\nranks-per-device = 2\n");
  const auto parsed = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"train", "--resume", run.path().string()};
    words.insert(words.end(), more.begin(), more.end());
    return std::get<TrainOptions>(test::parse(words));
  };
  const TrainOptions as_it_was = parsed({});
  const BatchOptions& batch = as_it_was.batch;
  EXPECT_EQ(batch.before.world, 4);
  EXPECT_EQ(batch.before.device_rows, 2);
  EXPECT_EQ(batch.before.total_tokens, 256);
  EXPECT_FALSE(batch.device_rows || batch.total_tokens);
  EXPECT_EQ(batch.target_tokens, 250);
  EXPECT_EQ(as_it_was.devices.ranks_per_device, 2);
  EXPECT_EQ(parsed({"--process-per-device"}).devices.ranks_per_device, 1);
  EXPECT_EQ(parsed({"--total-batch-size", "64"}).batch.total_tokens, 64);
  EXPECT_EQ(parsed({"--target-batch-size", "250"}).batch.before.total_tokens, 256);
  EXPECT_FALSE(parsed({"--target-batch-size", "64"}).batch.before.total_tokens);
  EXPECT_EQ(parsed({"--max-seq-len", "32"}).batch.before.world, 4);
  EXPECT_THROW(parsed({"--max-seq-len", "48"}), InputError);
}

std::vector<std::pair<std::int64_t, std::int64_t>> batches_of(const RunConfig& run) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (const TokenCount::Stage& stage : run.batches)
    out.emplace_back(stage.from, stage.tokens);
  return out;
}

TEST(BatchStages, TheBatchMayChangeDuringARun) {
  using Batches = std::vector<std::pair<std::int64_t, std::int64_t>>;
  TrainOptions options = plain(2);
  BatchSizes sizes(1024);
  sizes.stages.push_back({.tokens = 4096, .step = 10});
  sizes.stages.push_back({.tokens = 3072, .share = 0.5});
  options.batch.total_tokens = sizes;
  options.batch.iterations = 101;
  const RunConfig run = resolved(options);
  EXPECT_EQ(batches_of(run), (Batches{{0, 1024}, {10, 4096}, {50, 3072}}));  // 50.5, half to even
  EXPECT_EQ(run.step.batch, 2);  // of 256 tokens on each of two devices: 1024, which divides all
  EXPECT_EQ(run.step.accumulation, 4);
  EXPECT_EQ(run.form_of_micro_steps(), graphs::MicroSteps::kLoop);
  EXPECT_EQ(run.horizon_tokens(), 10 * 1024 + 40 * 4096 + 51 * 3072);
  EXPECT_EQ(run.rows_before(12), (10 * 1024 + 2 * 4096) / 256);
  EXPECT_EQ(run.token_count().of_step(9), 1024);
  EXPECT_EQ(run.token_count().of_step(10), 4096);

  // Each step has the rates of a run of its batch.
  TrainOptions single = options;
  for (const auto& [step, tokens] : Batches{{0, 1024}, {9, 1024}, {10, 4096}, {100, 3072}}) {
    single.batch.total_tokens = tokens;
    const RunConfig of_batch = resolved(single);
    const HyperParameters hyper = hyper_parameters_at(run, step);
    EXPECT_EQ(hyper.matrix_lr, of_batch.hyper.matrix_lr) << step;
    EXPECT_EQ(hyper.muon_weight_decay, of_batch.hyper.muon_weight_decay);
    EXPECT_EQ(hyper.adam[1].lr, of_batch.hyper.adam[1].lr);
  }

  // Lengths in tokens and FLOPs.
  options.batch.iterations.reset();
  const RunConfig by_ratio = resolved(options);
  EXPECT_LE(by_ratio.horizon_tokens(), static_cast<double>(by_ratio.targets.tokens));
  EXPECT_GT(by_ratio.horizon_tokens() + 2 * 4096, static_cast<double>(by_ratio.targets.tokens));
  EXPECT_EQ(by_ratio.batches[2].from,
            std::llrint(0.5 * static_cast<double>(by_ratio.iterations())));
  options.batch.target_flops = by_ratio.flops_per_token * (10 * 1024 + 40 * 4096 + 51 * 3072);
  EXPECT_EQ(resolved(options).iterations(), 101);
}

TEST(BatchStages, ImpossibleChangesOfTheBatchAreRefused) {
  TrainOptions options = plain(2);
  options.batch.iterations = 100;
  const auto error_with = [&](const BatchSizes::Stage& stage) {
    BatchSizes sizes(1024);
    sizes.stages.push_back({.tokens = 2048, .step = 50});
    sizes.stages.push_back(stage);
    options.batch.total_tokens = sizes;
    return test::message_of<InputError>([&] { static_cast<void>(resolved(options)); });
  };
  EXPECT_THAT(error_with({.tokens = 5000, .step = 60}),
              HasSubstr("--total-batch-size 5000: not a multiple of 512 tokens"));
  EXPECT_EQ(error_with({.tokens = 512, .share = 0.4}),
            "--total-batch-size: 512 tokens begin at step 40, but 2048 before them at 50");
  options.batch.time_budget = Duration{60};
  EXPECT_THAT(error_with({.tokens = 512, .share = 0.6}), HasSubstr("512@0.6: a share of a number"));
}

}  // namespace
}  // namespace muo::trainer
