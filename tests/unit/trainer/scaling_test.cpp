#include "trainer/run/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/errors.h"

namespace muo::trainer {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr double kM = 1e6, kG = 1e9;

// The options of `nanochat --depth`, on one device.
RunConfig run_of(std::int64_t depth, const TrainOptions& more = {}, std::int64_t vocab = 32768) {
  TrainOptions options = more;
  options.model.depth = depth;
  options.devices.count = 1;
  data::Corpus corpus;
  corpus.vocab_size = vocab;
  return resolve(options, corpus);
}

TEST(Scaling, GoldenNumbersOfDepthTwelve) {
  const RunConfig run = run_of(12);
  EXPECT_EQ(run.scaling_parameters, 110'100'912);
  EXPECT_EQ(run.targets.tokens, 1'321'210'944);
  EXPECT_EQ(run.parameters, 286'261'730);
  EXPECT_EQ(run.flops_per_token, 759'696'048);
  EXPECT_EQ(run.targets.reference_tokens, 1'321'210'944);
  EXPECT_EQ(run.tokens_per_step(), 1 << 19);
  EXPECT_EQ(run.iterations(), 2520);
  EXPECT_EQ(run.scales.batch_lr, 1.0);
  EXPECT_EQ(run.scales.width_lr, 1.0);
  EXPECT_EQ(run.scales.weight_decay, 1.0);
}

// nanochat's build_model_meta also builds its 12-layer reference model with the given aspect ratio
// and head size.
TEST(Scaling, FollowsTheAspectRatioAndTheHeadSize) {
  TrainOptions options;
  options.model.aspect_ratio = 32;
  options.model.head_size = 64;
  const RunConfig run = run_of(5, options);
  EXPECT_EQ(run.model.n_embd, 192);  // 160, rounded up
  EXPECT_EQ(run.model.n_head, 3);
  const RunConfig reference = run_of(12, options);
  EXPECT_EQ(reference.model.n_embd, 384);
  EXPECT_EQ(reference.model.n_head, 6);
  EXPECT_EQ(run.targets.reference_tokens, 12.0 * static_cast<double>(reference.scaling_parameters));
  EXPECT_EQ(reference.tokens_per_step(), 1 << 19);
  EXPECT_EQ(reference.scales.weight_decay, 1.0);
  EXPECT_EQ(reference.scales.width_lr, std::sqrt(2.0));  // of 768, whatever the ratio
}

// nanochat's table by depth at ratio 12, T 2048, vocabulary 32768, as printed: the tolerance is
// half of the last digit.
TEST(Scaling, GoldenTableByDepth) {
  struct Row {
    std::int64_t depth, width, heads;
    double wte, value_embeds, matrices, total, scaling;  // M; lm_head is as large as wte
    double flops_per_token, attention;                   // G, %
    double tokens;                                       // G
    int log2_batch;
    std::int64_t steps;
    double batch_scale, weight_decay, width_scale;
    double flops, flops_digit;
  };
  const Row rows[] = {
      {4, 256, 2, 8.4, 16.8, 3.1, 36.7, 11.5, .080, 13.7, .14, 18, 528, .707, 1.8899, 1.732,
       1.11e16, 1e14},
      {6, 384, 3, 12.6, 37.7, 10.6, 73.5, 23.2, .168, 16.9, .28, 18, 1062, .707, .9396, 1.414,
       4.66e16, 1e14},
      {8, 512, 4, 16.8, 67.1, 25.2, 125.8, 41.9, .296, 14.9, .50, 18, 1920, .707, .5197, 1.225,
       1.49e17, 1e15},
      {10, 640, 5, 21.0, 104.9, 49.2, 196.0, 70.1, .495, 15.1, .84, 19, 1605, 1, .4396, 1.095,
       4.17e17, 1e15},
      {12, 768, 6, 25.2, 151.0, 84.9, 286.3, 110.1, .760, 13.0, 1.32, 19, 2520, 1, .2800, 1.000,
       1.00e18, 1e16},
      {14, 896, 7, 29.4, 205.5, 134.9, 399.1, 164.2, 1.129, 12.7, 1.97, 19, 3759, 1, .1877, .926,
       2.22e18, 1e16},
      {16, 1024, 8, 33.6, 268.4, 201.3, 536.9, 234.9, 1.585, 11.1, 2.82, 19, 5376, 1, .1313, .866,
       4.47e18, 1e16},
      {18, 1152, 9, 37.7, 339.7, 286.7, 701.9, 324.4, 2.180, 10.7, 3.89, 20, 3712, 1.414, .1344,
       .816, 8.49e18, 1e16},
      {20, 1280, 10, 41.9, 419.4, 393.2, 896.5, 435.2, 2.886, 9.5, 5.22, 20, 4980, 1.414, .1002,
       .775, 1.51e19, 1e17},
      {22, 1408, 11, 46.1, 507.5, 523.4, 1123.2, 569.5, 3.763, 9.2, 6.83, 20, 6517, 1.414, .0766,
       .739, 2.57e19, 1e17},
      {24, 1536, 12, 50.3, 604.0, 679.5, 1384.1, 729.8, 4.775, 8.3, 8.76, 20, 8352, 1.414, .0597,
       .707, 4.18e19, 1e17},
      {26, 1664, 13, 54.5, 708.8, 863.9, 1681.8, 918.4, 5.991, 8.0, 11.02, 20, 10510, 1.414, .0475,
       .679, 6.60e19, 1e17},
      {28, 1792, 14, 58.7, 822.1, 1079.0, 2018.5, 1137.7, 7.366, 7.3, 13.65, 20, 13020, 1.414,
       .0383, .655, 1.01e20, 1e18},
      {30, 1920, 15, 62.9, 943.7, 1327.1, 2396.7, 1390.0, 8.977, 7.1, 16.68, 20, 15907, 1.414,
       .0314, .632, 1.50e20, 1e18},
      {32, 2048, 16, 67.1, 1073.7, 1610.6, 2818.6, 1677.7, 10.771, 6.5, 20.13, 21, 9600, 2.0, .0368,
       .612, 2.17e20, 1e18},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.depth);
    const RunConfig run = run_of(row.depth);
    EXPECT_EQ(run.model.n_layer, row.depth);
    EXPECT_EQ(run.model.n_embd, row.width);
    EXPECT_EQ(run.model.n_head, row.heads);
    const model::ParameterCounts counts = model::count_parameters(run.model);
    EXPECT_NEAR(static_cast<double>(counts.wte), row.wte * kM, 0.05 * kM);
    EXPECT_EQ(counts.lm_head, counts.wte);
    EXPECT_NEAR(static_cast<double>(counts.value_embeds), row.value_embeds * kM, 0.05 * kM);
    EXPECT_NEAR(static_cast<double>(counts.transformer_matrices), row.matrices * kM, 0.05 * kM);
    EXPECT_NEAR(static_cast<double>(run.parameters), row.total * kM, 0.05 * kM);
    EXPECT_NEAR(static_cast<double>(run.scaling_parameters), row.scaling * kM, 0.05 * kM);
    EXPECT_NEAR(run.flops_per_token, row.flops_per_token * kG, 0.0005 * kG);
    EXPECT_NEAR(100 * model::attention_flops_per_token(run.model) / run.flops_per_token,
                row.attention, 0.05);
    EXPECT_NEAR(static_cast<double>(run.targets.tokens), row.tokens * kG, 0.005 * kG);
    EXPECT_EQ(run.tokens_per_step(), std::int64_t{1} << row.log2_batch);
    EXPECT_EQ(run.iterations(), row.steps);
    EXPECT_NEAR(run.scales.batch_lr, row.batch_scale, 0.0005);
    EXPECT_NEAR(run.scales.width_lr, row.width_scale, 0.0005);
    EXPECT_NEAR(run.hyper.muon_weight_decay, row.weight_decay, 0.00005);
    const double flops = run.flops_per_token * static_cast<double>(run.iterations()) *
                         static_cast<double>(run.tokens_per_step());
    EXPECT_NEAR(flops, row.flops, 0.5 * row.flops_digit);
  }
}

// D in the rules for batch and weight decay is ratio x S, whatever the number of steps.
TEST(Scaling, GivenStepsOrComputeDoNotAffectBatchAndWeightDecay) {
  const RunConfig rule = run_of(8);
  TrainOptions steps;
  steps.batch.iterations = 100;
  TrainOptions compute;
  compute.batch.target_flops = 1e16;
  for (const TrainOptions& more : {steps, compute}) {
    const RunConfig run = run_of(8, more);
    EXPECT_NE(run.iterations(), rule.iterations());
    EXPECT_EQ(run.tokens_per_step(), rule.tokens_per_step());
    EXPECT_EQ(run.scales.weight_decay, rule.scales.weight_decay);
  }
}

TEST(Scaling, AnExplicitBatchDrivesRatesAndWeightDecay) {
  const RunConfig rule = run_of(8);
  TrainOptions more;
  more.batch.total_tokens = rule.tokens_per_step() / 4;
  const RunConfig run = run_of(8, more);
  EXPECT_DOUBLE_EQ(run.scales.batch_lr, rule.scales.batch_lr / 2);
  EXPECT_DOUBLE_EQ(run.scales.weight_decay, rule.scales.weight_decay / 2);
  EXPECT_EQ(run.scales.width_lr, rule.scales.width_lr);
  EXPECT_EQ(run.iterations(), rule.targets.tokens / (rule.tokens_per_step() / 4));
}

TEST(Scaling, TheRatioSetsTokensAndBatchButCancelsInWeightDecay) {
  TrainOptions more;
  more.batch.target_param_data_ratio = 8;
  const RunConfig run = run_of(12, more);
  EXPECT_EQ(run.targets.tokens, 880'807'296);
  EXPECT_EQ(run.tokens_per_step(), 1 << 19);  // D / D_ref stays 1
  EXPECT_EQ(run.iterations(), 1680);
  EXPECT_EQ(run.scales.weight_decay, 1.0);
  more.batch.target_param_data_ratio = 0.3;  // of 110100912: 33030273.6
  EXPECT_EQ(run_of(12, more).targets.tokens, 33'030'273);
}

// The logarithm of B, given in the comments, is within 0.02 of a half, so that another exponent
// would round differently. Computed by a few lines of Python with nanochat's formula.
TEST(Scaling, TheBatchGrowsWithThePowerThatNanochatFitted) {
  struct Row {
    std::int64_t vocab, depth, tokens;
    int log2_batch;
  };
  for (const Row& row : {Row{257, 29, 15'401'811'600, 20},    // 20.4988
                         Row{257, 30, 15'932'653'200, 21},    // 20.5176
                         Row{32768, 31, 19'528'716'288, 20},  // 20.4882
                         Row{32768, 32, 20'132'696'064, 21},  // 20.505
                         Row{65536, 2, 105'382'032, 17},      // 17.489
                         Row{65536, 7, 666'896'640, 19}}) {   // 18.5085
    const RunConfig run = run_of(row.depth, {}, row.vocab);
    EXPECT_EQ(run.targets.tokens, row.tokens);
    EXPECT_EQ(run.targets.batch_tokens, std::int64_t{1} << row.log2_batch) << row.depth;
  }
}

TEST(Scaling, DepthTwelveIsTheReferenceForTheSameVocabularyAndExtras) {
  TrainOptions plain;
  plain.model.preset = ModelPreset::kPlain;
  plain.model.set(&model::GptConfig::seq_len, 2048);
  const RunConfig run = run_of(12, plain);
  EXPECT_EQ(run.scaling_parameters, 110'100'480);  // no gates
  EXPECT_EQ(run.targets.reference_tokens, 12 * 110'100'480.0);
  EXPECT_EQ(run.scales.weight_decay, 1.0);
}

TEST(Scaling, EveryFactorCanBeGiven) {
  TrainOptions more;
  more.optimizer.batch_lr_scale = 2;
  more.optimizer.width_lr_scale = 3;
  more.optimizer.weight_decay_scale = 5;
  const RunConfig run = run_of(4, more);
  const HyperParameters& hyper = run.hyper;
  EXPECT_DOUBLE_EQ(hyper.matrix_lr, 0.02 * 2);
  EXPECT_DOUBLE_EQ(hyper.adam[optim::update_group(ParamRole::kEmbedding).adam_group].lr,
                   0.3 * 2 * 3);
  EXPECT_DOUBLE_EQ(hyper.muon_weight_decay, 0.28 * 5);
}

TEST(Scaling, NotesHaveEveryDerivedNumber) {
  const std::vector<std::string> notes = scaling_notes(run_of(12));
  EXPECT_THAT(notes, Contains("target: 12 tokens for each of 110M scaling parameters: 1.32G "
                              "tokens, 524288 per step"));
  EXPECT_THAT(notes, Contains("horizon: 2520 steps of 524288: 1.32G tokens"));
  EXPECT_THAT(notes, Contains("learning rates: lm_head 0.008, wte 0.3, value_embeds 0.15, "
                              "resid_lambdas 0.005, x0_lambdas 0.5, smear 0.2, matrices 0.02"));
  EXPECT_THAT(notes, Contains("factors: rates x 1 by batch, of embeddings and head x 1 by width; "
                              "weight decay 0.28 = 0.28 x 1"));
  EXPECT_THAT(notes,
              Contains("compute: 760M FLOPs per token (13.0 % attention; 726M without masked "
                       "pairs), 1e+18 in total, without the optimizer"));
}

// c_fc has 4 times as many rows as columns, so its learning rate is doubled; momentum ends at 0.9.
TEST(Scaling, WarnsOfWeightDecayFasterThanMomentum) {
  const auto decay = [](const RunConfig& run) {
    return 2 * run.hyper.matrix_lr * run.hyper.muon_weight_decay;
  };
  bool warned = false, silent = false;
  for (const std::int64_t depth : {1, 2, 3, 4, 5, 6, 8, 12, 20}) {
    const RunConfig run = run_of(depth, {}, data::kByteVocab);
    const bool dangerous = decay(run) >= 0.1;
    (dangerous ? warned : silent) = true;
    EXPECT_EQ(testing::Value(scaling_notes(run), Contains(HasSubstr("weight decay is dangerous"))),
              dangerous)
        << depth;
  }
  EXPECT_TRUE(warned && silent);
  TrainOptions none;
  none.optimizer.weight_decay_scale = 1;
  EXPECT_THAT(scaling_notes(run_of(1, none, data::kByteVocab)),
              Not(Contains(HasSubstr("dangerous"))));
}

TEST(Scaling, WarnsOfAWarmUpLongerThanTheRun) {
  TrainOptions options;
  options.batch.iterations = 40;
  EXPECT_THAT(scaling_notes(run_of(12, options)), Not(Contains(HasSubstr("warm-up"))));
  options.batch.iterations = 8;
  EXPECT_THAT(scaling_notes(run_of(12, options)),
              Contains(HasSubstr("warm-up of 40 steps is longer than the run of 8: learning rates "
                                 "reach 20 % of their values")));
}

TEST(Scaling, RefusesMoreTokensThanCanBeCounted) {
  TrainOptions more;
  more.batch.target_param_data_ratio = 1e12;
  EXPECT_THAT(test::message_of<InputError>([&] { static_cast<void>(run_of(12, more)); }),
              HasSubstr("--target-param-data-ratio 1e+12"));
  more.batch.target_param_data_ratio = 1e-9;
  const RunConfig run = run_of(12, more);
  EXPECT_EQ(run.targets.tokens, 1);
  EXPECT_EQ(run.iterations(), 1);
}

TEST(TargetBatch, ReplacesTheRuleAndIsReplacedByAnExplicitBatch) {
  for (std::int64_t world = 1; world <= 9; ++world) {
    TrainOptions options;
    options.model.preset = ModelPreset::kPlain;
    options.devices.backend = Backend::kHost;
    options.devices.count = world;
    options.batch.target_tokens = 4096;
    const RunConfig run = resolve(options, data::corpus_without_tokens(options.data));
    EXPECT_EQ(run.tokens_per_step() % (256 * world), 0);
    EXPECT_LE(std::abs(run.tokens_per_step() - 4096) * 2, 256 * world) << world;
    EXPECT_EQ(run.step.accumulation, 1);
    EXPECT_EQ(testing::Value(run.notes, Contains(HasSubstr("nearest to 4096"))), 16 % world != 0);
    options.batch.total_tokens = 256 * world;
    EXPECT_EQ(resolve(options, data::corpus_without_tokens(options.data)).tokens_per_step(),
              256 * world);
  }
  TrainOptions options;
  options.devices.backend = Backend::kHost;
  options.devices.count = 3;
  options.model.set(&model::GptConfig::seq_len, 256);
  options.batch.total_tokens = 4096;
  EXPECT_THAT(test::message_of<InputError>([&] {
                static_cast<void>(resolve(options, data::corpus_without_tokens(options.data)));
              }),
              HasSubstr("give 3840 or 4608"));
}

}  // namespace
}  // namespace muo::trainer
