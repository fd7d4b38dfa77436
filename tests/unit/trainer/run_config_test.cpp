#include "trainer/run/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "support/environment.h"
#include "support/errors.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/run/backend.h"

namespace muo::trainer {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class FakeData final : public data::TokenData {
 public:
  explicit FakeData(std::int64_t tokens) : tokens_(tokens) {}
  [[nodiscard]] std::int64_t size() const override { return tokens_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    for (std::int32_t& token : out)  // every fourth token begins a document
      token = begin++ % 4 == 0 ? data::kBosToken : 65;
  }

 private:
  std::int64_t tokens_;
};

data::Corpus corpus(std::int64_t vocab = data::kByteVocab, std::int64_t train = 1 << 20,
                    std::int64_t val = 1 << 17) {
  data::Corpus out;
  out.train = std::make_unique<FakeData>(train);
  out.val = std::make_unique<FakeData>(val);
  out.vocab_size = vocab;
  out.token_bytes.assign(static_cast<std::size_t>(vocab), 1);
  if (vocab == data::kByteVocab) out.token_bytes[data::kBosToken] = 0;
  if (vocab == data::kByteVocab) out.tokenizer = data::open_tokenizer("byte");
  return out;
}

TrainOptions plain() {
  TrainOptions options;
  options.model.preset = ModelPreset::kPlain;
  return options;
}

TrainOptions two_devices() {
  TrainOptions options = plain();
  options.devices.count = 2;
  return options;
}

std::string error_of(const TrainOptions& options, const data::Corpus& data = corpus()) {
  return test::message_of<InputError>([&] { static_cast<void>(resolve(options, data)); });
}

// nanochat's table by depth (width, heads), and its parameter counts without value embeddings and
// gates, which the plain model does not have.
TEST(RunConfig, DepthSetsSizesAsNanochat) {
  struct Row {
    std::int64_t depth, width, heads, scaling;
  };
  constexpr std::int64_t kVocab = 32768;
  for (const Row& row : {Row{4, 256, 2, 11534336}, Row{6, 384, 3, 23199744},
                         Row{12, 768, 6, 110100480}, Row{20, 1280, 10, 435159040},
                         Row{26, 1664, 13, 918421504}, Row{32, 2048, 16, 1677721600}}) {
    TrainOptions options = two_devices();
    options.model.depth = row.depth;
    const RunConfig run = resolve(options, corpus(kVocab));
    EXPECT_EQ(run.model.n_layer, row.depth);
    EXPECT_EQ(run.model.n_embd, row.width);
    EXPECT_EQ(run.model.n_head, row.heads);
    EXPECT_EQ(run.model.n_kv_head, row.heads);
    EXPECT_EQ(run.scaling_parameters, row.scaling);
    EXPECT_EQ(run.parameters, row.scaling + kVocab * row.width);
  }
}

TEST(RunConfig, OddDepthRoundsTheWidthUpToWholeHeads) {
  TrainOptions options = two_devices();
  options.model.depth = 5;
  const RunConfig run = resolve(options, corpus());
  EXPECT_EQ(run.model.n_embd, 384);
  EXPECT_EQ(run.model.n_head, 3);
}

TEST(RunConfig, SizesOverrideDepth) {
  TrainOptions options = two_devices();
  options.model.set(&model::GptConfig::n_layer, 3);
  options.model.set(&model::GptConfig::n_embd, 96);
  options.model.set(&model::GptConfig::n_head, 6);
  options.model.set(&model::GptConfig::n_kv_head, 2);
  const RunConfig run = resolve(options, corpus());
  EXPECT_EQ(run.model.n_layer, 3);
  EXPECT_EQ(run.model.n_embd, 96);
  EXPECT_EQ(run.model.head_dim(), 16);
  EXPECT_EQ(run.model.n_kv_head, 2);
  EXPECT_EQ(run.model.vocab_size, data::kByteVocab);
}

TEST(RunConfig, ModelSetsTheExtrasAndEachSwitchOverrulesIt) {
  const model::GptConfig nanochat = make_gpt_config(ModelOptions(), 10);
  EXPECT_TRUE(nanochat.value_embeddings && nanochat.smear && nanochat.backout);
  EXPECT_TRUE(nanochat.resid_lambdas && nanochat.x0_lambdas);
  EXPECT_EQ(nanochat.qk_scale, 1.2F);
  EXPECT_EQ(nanochat.window_pattern, "SSSL");
  EXPECT_EQ(nanochat.seq_len, 2048);
  const model::GptConfig bare = make_gpt_config(plain().model, 10);
  EXPECT_FALSE(bare.value_embeddings || bare.smear || bare.backout);
  EXPECT_FALSE(bare.resid_lambdas || bare.x0_lambdas);
  EXPECT_EQ(bare.qk_scale, 1.0F);
  EXPECT_EQ(bare.window_pattern, "L");
  EXPECT_EQ(bare.seq_len, 256);

  using Switch = bool model::GptConfig::*;
  constexpr std::array<Switch, 5> kSwitches = {
      &model::GptConfig::value_embeddings, &model::GptConfig::smear, &model::GptConfig::backout,
      &model::GptConfig::resid_lambdas, &model::GptConfig::x0_lambdas};
  for (const Switch field : kSwitches) {
    TrainOptions with = plain();
    with.model.set(field, true);
    TrainOptions without;
    without.model.set(field, false);
    for (const Switch other : kSwitches) {
      EXPECT_EQ(make_gpt_config(with.model, 10).*other, other == field);
      EXPECT_EQ(make_gpt_config(without.model, 10).*other, other != field);
    }
  }
  TrainOptions mixed;
  mixed.model.set(&model::GptConfig::qk_scale, 1.5);
  mixed.model.set(&model::GptConfig::window_pattern, "SL");
  mixed.model.set(&model::GptConfig::seq_len, 100);
  const model::GptConfig model = make_gpt_config(mixed.model, 10);
  EXPECT_EQ(model.qk_scale, 1.5F);
  EXPECT_EQ(model.window_pattern, "SL");
  EXPECT_EQ(model.seq_len, 100);
}

TEST(RunConfig, GraphBranchesReachTheRanks) {
  TrainOptions options = two_devices();
  EXPECT_EQ(resolve(options, corpus()).group.graph_branches(), Branches::kThree);
  options.capture.branches = 1;
  EXPECT_EQ(resolve(options, corpus()).group.graph_branches(), Branches::kOne);
}

TEST(RunConfig, NumberFormatsFollowTheDtype) {
  const auto formats = [](std::optional<DType> dtype, std::optional<DType> weights) {
    TrainOptions options = two_devices();
    options.numbers.dtype = dtype;
    options.numbers.weight_wire = weights;
    return resolve(options, corpus()).formats();
  };
  EXPECT_EQ(resolve(two_devices(), corpus()).model.dtype, DType::kF32);
  EXPECT_EQ(formats({}, {}).weight_wire, DType::kF32);
  EXPECT_EQ(formats(DType::kBF16, {}).weight_wire, DType::kBF16);
  EXPECT_EQ(formats(DType::kBF16, {}).gradient_wire, DType::kF32);
  EXPECT_EQ(formats(DType::kBF16, {}).embedding_state, DType::kF32);
  EXPECT_EQ(formats(DType::kF32, DType::kBF16).weight_wire, DType::kBF16);
  EXPECT_THAT(test::message_of<InputError>([&] { formats(DType::kBF16, DType::kF32); }),
              HasSubstr("--weight-wire fp32"));
  TrainOptions options = two_devices();
  options.numbers.dtype = options.numbers.gradient_wire = DType::kBF16;
  options.numbers.embedding_state = DType::kBF16;
  const RunConfig run = resolve(options, corpus());
  EXPECT_EQ(run.model.dtype, DType::kBF16);
  EXPECT_EQ(run.formats().gradient_wire, DType::kBF16);
  EXPECT_EQ(run.formats().embedding_state, DType::kBF16);
  options.numbers.adam_state = DType::kBF16;
  EXPECT_THAT(test::message_of<InputError>([&] { resolve(options, corpus()); }),
              HasSubstr("give only one of the two options"));
  options.numbers.embedding_state = DType::kF32;
  options.numbers.momentum_state = DType::kBF16;
  options.numbers.master_weights = MasterWeights::kSplit;
  EXPECT_TRUE(resolve(options, corpus()).formats().split_masters);
  EXPECT_EQ(resolve(options, corpus()).formats().adam_state, DType::kBF16);
  EXPECT_EQ(resolve(options, corpus()).formats().momentum_state, DType::kBF16);
  options.numbers.dtype = DType::kF32;
  EXPECT_THAT(test::message_of<InputError>([&] { resolve(options, corpus()); }),
              HasSubstr("the master is the weight itself"));
}

// Sums over micro-steps must be rounded only once, so they must accumulate in fp32.
TEST(RunConfig, Bf16GradientsNeedOneMicroStepOrReductionInEach) {
  TrainOptions options = two_devices();
  constexpr std::int64_t kRows = 2;
  options.batch.device_rows = kRows;
  options.numbers.gradients = DType::kBF16;
  EXPECT_THAT(error_of(options), HasSubstr("gradients of fp32 weights are fp32"));
  options.numbers.dtype = DType::kBF16;
  options.model.set(&model::GptConfig::seq_len, 64);
  constexpr std::int64_t kTokens = kRows * 2 * 64;
  options.batch.total_tokens = kTokens;
  EXPECT_EQ(resolve(options, corpus()).formats().gradient_wire, DType::kBF16);
  options.numbers.gradient_wire = DType::kF32;
  EXPECT_THAT(error_of(options), HasSubstr("are sent unconverted"));
  options.numbers.gradient_wire.reset();
  options.batch.total_tokens = 3 * kTokens;
  EXPECT_THAT(error_of(options),
              AllOf(HasSubstr("3 micro-steps accumulate"), HasSubstr("--shard gradients"),
                    HasSubstr("--device-batch-size " + std::to_string(3 * kRows))));
  for (const optim::Shard shard : {optim::Shard::kGradients, optim::Shard::kWeights}) {
    options.sharding.shard = shard;
    EXPECT_EQ(resolve(options, corpus()).step.accumulation, 3) << name_of(shard);
  }
  options.devices.count = 1;
  options.batch.total_tokens = kTokens;
  EXPECT_THAT(error_of(options),
              AllOf(HasSubstr("2 micro-steps accumulate"), Not(HasSubstr("--shard"))));
}

TEST(RunConfig, HeadsNotGivenDivideAnyEvenWidth) {
  for (std::int64_t width = 2; width <= 600; width += 2) {
    TrainOptions options = two_devices();
    options.model.set(&model::GptConfig::n_embd, width);
    // If the width is twice a large prime, all possible head sizes exceed 256, the largest allowed
    // size.
    const model::GptConfig model = make_gpt_config(options.model, 10);
    EXPECT_EQ(width % model.n_head, 0) << width;
    EXPECT_EQ(model.head_dim() % 2, 0) << width;
  }
  TrainOptions options = two_devices();
  options.model.set(&model::GptConfig::n_embd, 640);
  EXPECT_EQ(make_gpt_config(options.model, 10).n_head, 5);
}

TEST(RunConfig, AutomaticBatchIsTheNearestFeasibleForAnyWorld) {
  for (std::int64_t world = 1; world <= 9; ++world)
    for (const std::int64_t length : {2, 100, 256, 300, 4096, 20000}) {
      TrainOptions options = plain();
      options.devices.count = world;
      options.model.set(&model::GptConfig::seq_len, length);
      const RunConfig run = resolve(options, corpus());
      const std::int64_t unit = length * world * run.step.batch;
      const std::int64_t wanted = run.targets.batch_tokens;
      EXPECT_EQ(wanted, 131072);  // for depth 4 and a vocabulary of 257
      EXPECT_EQ(run.tokens_per_step(), unit * run.step.accumulation);
      EXPECT_GE(run.step.accumulation, 1);
      // No other number of micro-steps of this batch is nearer to the target.
      EXPECT_TRUE(std::abs(run.tokens_per_step() - wanted) * 2 <= unit ||
                  run.step.accumulation == 1);
      EXPECT_THAT(run.notes, Contains(HasSubstr("total-batch-size: ")));
      EXPECT_EQ(testing::Value(run.notes, Contains(HasSubstr("nearest to 131072"))),
                run.tokens_per_step() != wanted);
      EXPECT_EQ(run.resolved().batch.total_tokens, run.tokens_per_step());
      EXPECT_EQ(run.resolved().batch.device_rows, run.step.batch);
      EXPECT_EQ(run.scales.batch_lr,
                std::sqrt(static_cast<double>(run.tokens_per_step()) / 524288));
    }
}

TEST(RunConfig, AutomaticTotalIsTheMultipleNearestToTheRule) {
  for (std::int64_t rows = 1; rows <= 20; ++rows) {
    TrainOptions options = two_devices();
    options.batch.device_rows = rows;
    const RunConfig run = resolve(options, corpus());
    EXPECT_EQ(run.step.batch, rows);
    EXPECT_LE(std::abs(run.tokens_per_step() - run.targets.batch_tokens) * 2, 512 * rows);
  }
}

TEST(RunConfig, ExplicitTotalFindsItsDeviceBatch) {
  TrainOptions options = two_devices();
  options.batch.total_tokens = 2 * 256 * 24;
  const RunConfig run = resolve(options, corpus());
  EXPECT_EQ(run.tokens_per_step(), 2 * 256 * 24);
  EXPECT_EQ(24 % run.step.batch, 0);
  EXPECT_GT(run.step.batch, 1);
}

TEST(RunConfig, ExplicitBatchesThatDoNotFitAreRefusedWithTheNearest) {
  TrainOptions options = two_devices();
  options.batch.total_tokens = 5000;
  EXPECT_EQ(error_of(options),
            "--total-batch-size 5000: not a multiple of 512 tokens (--max-seq-len 256 x --devices "
            "2): give 4608 or 5120");
  options.batch.device_rows = 3;
  options.batch.total_tokens = 512 * 4;
  EXPECT_EQ(error_of(options),
            "--total-batch-size 2048: not a multiple of 1536 tokens (--device-batch-size 3 x "
            "--max-seq-len 256 x --devices 2): give 1536 or 3072");
  options.batch.total_tokens = 512;
  EXPECT_THAT(error_of(options), HasSubstr("): give 1536"));
}

TEST(RunConfig, StepsFollowNanochatsOrderOfPrecedence) {
  TrainOptions options = two_devices();
  options.batch.target_param_data_ratio = 12;
  options.batch.total_tokens = 512;
  const RunConfig by_ratio = resolve(options, corpus());
  EXPECT_EQ(by_ratio.iterations(), by_ratio.scaling_parameters * 12 / 512);
  options.batch.target_flops = 100.6 * by_ratio.flops_per_token * 512;
  EXPECT_EQ(resolve(options, corpus()).iterations(), 101);
  options.batch.iterations = 7;
  EXPECT_EQ(resolve(options, corpus()).iterations(), 7);
  options.batch.iterations.reset();
  options.batch.target_flops = 1;
  EXPECT_THAT(error_of(options), HasSubstr("--target-flops 1: gives"));
}

TEST(RunConfig, DefaultDevicesAreTheCoresAtMostFour) {
  const RunConfig run = resolve(plain(), corpus());
  EXPECT_EQ(run.world(), std::min(usable_cores(), 4));
  EXPECT_THAT(run.notes, Contains(HasSubstr("devices: ")));
}

TEST(RunConfig, ResolvedOptionsResolveToTheSameRunWithoutDecisions) {
  const RunConfig first = resolve(TrainOptions(), corpus());
  const RunConfig second = resolve(first.resolved(), corpus());
  EXPECT_TRUE(second.notes.empty()) << second.notes.front();
  EXPECT_EQ(model_difference(second.model, first.model), "");
  EXPECT_EQ(second.model.n_embd, first.model.n_embd);
  EXPECT_EQ(second.step.batch, first.step.batch);
  EXPECT_EQ(second.step.accumulation, first.step.accumulation);
  EXPECT_EQ(second.iterations(), first.iterations());
  EXPECT_EQ(second.eval_rows(), first.eval_rows());
  EXPECT_EQ(second.scales.weight_decay, first.scales.weight_decay);
}

TEST(RunConfig, SaveMinutesAreMinutes) {
  using std::chrono::seconds;
  EXPECT_FALSE(is_due(SaveOptions{.minutes = 2}, seconds(119)));
  EXPECT_TRUE(is_due(SaveOptions{.minutes = 2}, seconds(120)));
  EXPECT_TRUE(is_due(SaveOptions{.minutes = 0.5}, seconds(31)));
  for (const double never : {-1.0, 0.0})
    EXPECT_FALSE(is_due(SaveOptions{.minutes = never}, seconds(1'000'000)));
}

TEST(RunConfig, CountsBytesPerTokenOfTheText) {
  EXPECT_DOUBLE_EQ(resolve(two_devices(), corpus()).bytes_per_token, 0.75);
}

TEST(RunConfig, RefusesImpossibleModels) {
  const auto with = [](auto change) {
    TrainOptions options = two_devices();
    change(options);
    return error_of(options);
  };
  EXPECT_THAT(with([](TrainOptions& o) {
                o.model.set(&model::GptConfig::n_embd, 100),
                    o.model.set(&model::GptConfig::n_head, 3);
              }),
              HasSubstr("--n-embd 100 does not divide into --n-head 3"));
  EXPECT_THAT(with([](TrainOptions& o) {
                o.model.set(&model::GptConfig::n_head, 2),
                    o.model.set(&model::GptConfig::n_kv_head, 3);
              }),
              HasSubstr("--n-kv-head 3"));
  EXPECT_THAT(with([](TrainOptions& o) {
                o.model.set(&model::GptConfig::n_embd, 99),
                    o.model.set(&model::GptConfig::n_head, 3);
              }),
              HasSubstr("odd"));
  EXPECT_THAT(with([](TrainOptions& o) { o.model.set(&model::GptConfig::window_pattern, "LX"); }),
              HasSubstr("--window-pattern"));
  EXPECT_THAT(with([](TrainOptions& o) { o.model.set(&model::GptConfig::seq_len, 1); }),
              HasSubstr("--max-seq-len"));
}

TEST(RunConfig, RefusesDataShorterThanARow) {
  const TrainOptions options = two_devices();
  EXPECT_EQ(
      error_of(options, corpus(data::kByteVocab, 256)),
      "--data: the training data is 256 tokens long, shorter than a row of 257: give more data, "
      "or a smaller --max-seq-len");
  EXPECT_THAT(error_of(options, corpus(data::kByteVocab, 257, 256)), HasSubstr("held-out data"));
  TrainOptions no_eval = options;
  no_eval.evaluation.every = -1;
  EXPECT_NO_THROW(static_cast<void>(resolve(no_eval, corpus(data::kByteVocab, 257, 256))));
}

TEST(RunConfig, ShardsAreNotSampled) {
  TrainOptions options = two_devices();
  EXPECT_EQ(resolve(options, corpus(50257)).options.evaluation.sample_every, -1);
  options.evaluation.sample_every = 10;
  EXPECT_THAT(error_of(options, corpus(50257)), HasSubstr("--sample-every"));
}

TEST(RunConfig, LargestSizesOverflowNothing) {
  TrainOptions options = plain();
  options.devices.count = 256;
  options.model.depth = 1024;
  options.model.set(&model::GptConfig::seq_len, 1 << 20);
  options.batch.device_rows = 1 << 20;
  options.batch.iterations = 1;
  const data::Corpus large = corpus(1 << 24, 1 << 21, 1 << 21);
  EXPECT_THAT(error_of(options, large), HasSubstr("give --device-batch-size 2047 or less"));
  options.batch.device_rows = 2047;
  const RunConfig run = resolve(options, large);
  EXPECT_EQ(run.tokens_per_step(), std::int64_t{2047} << 28);
  EXPECT_GT(run.parameters, 0);
}

TEST(RunConfig, ProfiledStepsAreStepsOfTheRun) {
  TrainOptions options = plain();
  options.batch.iterations = 20;
  options.run.profile_steps = "0:20";
  EXPECT_EQ(resolve(options, corpus()).profile_end, 20);
  for (const char* wrong : {"5", "5:", ":5", "5:5", "6:5", "-1:5", "5:21", "5:6x", "a:b", "5-6"}) {
    options.run.profile_steps = wrong;
    EXPECT_THAT(error_of(options),
                HasSubstr("--profile-steps " + std::string(wrong) + ": give A:B"));
  }
}

TEST(RunConfig, StrategiesWithUnshardedGradientsRejectShardingThem) {
  TrainOptions options = two_devices();
  options.sharding.shard = optim::Shard::kGradients;
  for (const std::string_view strategy : optim::strategy_names()) {
    options.sharding.strategy = strategy;
    if (strategy == "ddp" || strategy == "allreduce_owner")
      EXPECT_THROW(resolve(options, corpus()), InputError) << strategy;
    else
      EXPECT_NO_THROW(resolve(options, corpus())) << strategy;
  }
}

TEST(RunConfig, OnlyHostDevicesShareReplicas) {
  const auto common = [](const TrainOptions& options) {
    const RunConfig config = resolve(options, corpus());
    const optim::ShardingPlan plan =
        make_sharding_plan(config, model::gpt_parameters(config.model));
    return std::ranges::any_of(plan.buckets, [](const optim::Bucket& b) {
      return b.replica == optim::ReplicaAt::kCommon;
    });
  };
  TrainOptions options = two_devices();
  EXPECT_TRUE(common(options));
  options.sharding.replicas = optim::ReplicaAt::kEveryRank;
  EXPECT_FALSE(common(options));
  options.sharding.replicas.reset();
  options.sharding.strategy = "ddp";  // every rank writes every weight
  EXPECT_FALSE(common(options));
  options = two_devices();
  options.devices.count = 1;
  EXPECT_FALSE(common(options));
  const test::SimtForCuda simt;
  options = two_devices();
  options.devices.backend = Backend::kCuda;
  EXPECT_FALSE(common(options));
  options.sharding.replicas = optim::ReplicaAt::kCommon;
  EXPECT_THAT(error_of(options), HasSubstr("--replicas common: GPUs"));
}

}  // namespace
}  // namespace muo::trainer
