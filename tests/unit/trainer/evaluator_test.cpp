#include "trainer/train/evaluator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/memory/memory_plan.h"
#include "trainer/infer/inference.h"
#include "trainer/train/trainer.h"

namespace muo::trainer {
namespace {

constexpr std::int64_t kVocab = 11, kWidth = 16, kLength = 7;
constexpr double kSoftcap = 15;
// Token 3 is special; the other tokens stand for 1 to 4 bytes.
const std::vector<std::int32_t> kBytes = {1, 2, 1, 0, 4, 1, 3, 1, 1, 2, 1};

class Tokens final : public data::TokenData {
 public:
  [[nodiscard]] std::int64_t size() const override { return 100; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    for (std::int32_t& token : out)
      token = at(begin++);
  }
  static std::int32_t at(std::int64_t i) {
    return static_cast<std::int32_t>((i * i + i / 3) % kVocab);
  }
};

double logit(std::int64_t token) { return 0.75 * static_cast<double>(token) - 3; }

// A model that ignores its input: every embedding is ones, and blocks add nothing (their
// projections are zero), so that the logit of token j is the sum of row j of the head.
void fill(const ParamSpec& spec, Tensor weight) {
  auto* values = weight.as<float>();
  const std::int64_t columns = spec.shape[1];
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    if (spec.role == ParamRole::kEmbedding)
      values[i] = 1;
    else if (spec.role == ParamRole::kUnembedding)
      values[i] = static_cast<float>(logit(i / columns) / static_cast<double>(columns));
    else
      values[i] = 0;
  }
}

// The expected result for `rows`. Row i is the i-th block of kLength targets, which begin with
// token 1. Bits per byte are defined as in nanochat: nats of the targets that stand for text, over
// ln 2 times their bytes.
EvalResult reference(const std::vector<std::int64_t>& rows) {
  double sum = 0;
  for (std::int64_t j = 0; j < kVocab; ++j)
    sum += std::exp(kSoftcap * std::tanh(logit(j) / kSoftcap));
  double nats = 0, text_nats = 0, bytes = 0;
  std::int64_t targets = 0;
  for (const std::int64_t row : rows)
    for (std::int64_t i = 1 + kLength * row; i <= kLength * (row + 1); ++i) {
      if (i >= Tokens().size()) continue;
      const std::int32_t target = Tokens::at(i);
      const double loss = std::log(sum) - kSoftcap * std::tanh(logit(target) / kSoftcap);
      nats += loss;
      ++targets;
      if (kBytes.at(static_cast<std::size_t>(target)) == 0) continue;
      text_nats += loss;
      bytes += kBytes.at(static_cast<std::size_t>(target));
    }
  return {.loss = nats / static_cast<double>(targets),
          .bpb = text_nats / (std::log(2.0) * bytes),
          .targets = targets};
}

// A logit is a sum of kWidth fp32 products of size |logit|, rounded again in the soft-cap and in
// the loss; sums over targets are fp64. The error per byte is at most 1 / ln 2 of that.
constexpr double kEps = std::numeric_limits<float>::epsilon();
const double kTolerance = (kWidth + 8) * kEps * 2 * std::abs(logit(kVocab - 1)) / std::log(2.0);

EvalResult evaluate(int world, std::int64_t batch, const std::vector<std::int32_t>& bytes,
                    std::int64_t max_rows = 0) {
  model::GptConfig config;
  config.vocab_size = kVocab;
  config.n_layer = 1;
  config.n_head = config.n_kv_head = 2;
  config.n_embd = kWidth;
  config.seq_len = kLength;
  config.softcap = static_cast<float>(kSoftcap);
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  EvalResult result;
  DeviceGroup group({.world = world});
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device,
                       plan_inference_memory(config, params, {.eval = batch}, rank.rank, world));
    InferenceState state(rank, config, params, {.eval = batch}, arena);
    state.capture();
    const Tokens data;
    Evaluator evaluator(rank, *state.eval, data::HeldOutRows(data, nullptr, kLength), batch,
                        kLength, max_rows);
    model::fill_rotary_tables(rank.compute, config, state.rotary);
    graphs::fill_token_bytes(rank.compute, state.token_bytes, bytes);
    for (std::size_t i = 0; i < params.size(); ++i)
      fill(params[i], state.weights[i]);
    EXPECT_EQ(evaluator.rows(),
              max_rows > 0 ? max_rows : (data.size() - 1 + kLength - 1) / kLength);
    const EvalResult mine = evaluator.run();
    if (rank.rank == 0) result = mine;
  });
  return result;
}

// Expects that an evaluation of at most `max_rows` rows reads `rows`. Returns the expected result.
EvalResult expect_loss_of(const std::vector<std::int64_t>& rows, std::int64_t max_rows) {
  const EvalResult want = reference(rows);
  for (const int world : {1, 2, 3})
    for (const std::int64_t batch : {1, 4}) {
      const EvalResult is = evaluate(world, batch, kBytes, max_rows);
      EXPECT_EQ(is.targets, want.targets);
      EXPECT_NEAR(is.loss, want.loss, kTolerance) << world << ", " << batch;
      EXPECT_NEAR(is.bpb, want.bpb, kTolerance) << world << ", " << batch;
    }
  return want;
}

TEST(Evaluator, IsExpectedToTakeAThirdOfTrainingOnAsManyRows) {
  EXPECT_DOUBLE_EQ(expected_evaluation_seconds(960, 480, 3), 2);
  EXPECT_DOUBLE_EQ(expected_evaluation_seconds(240, 480, 3), 0.5);
}

TEST(Evaluator, BitsPerByteCountTextOnly) {
  const EvalResult want = expect_loss_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, 0);
  EXPECT_GT(std::abs(want.bpb - want.loss / std::log(2.0)), 100 * kTolerance);
}

// Row i of 4 is row floor(15 i / 4) of the 15 rows.
TEST(Evaluator, FewRowsAreSpreadOverTheData) { expect_loss_of({0, 3, 7, 11}, 4); }

TEST(Evaluator, WithoutBytesThereAreNoBitsPerByte) { EXPECT_LT(evaluate(2, 2, {}).bpb, 0); }

}  // namespace
}  // namespace muo::trainer
