#include "trainer/train/example_evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "runtime/memory/memory_plan.h"
#include "support/heap_arena.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include "trainer/run/backend.h"

namespace muo::trainer {
namespace {

using test::HostTensor;

constexpr std::int32_t kVocab = 61;
constexpr std::int64_t kRowTokens = 140;  // longer than the model's rows

model::GptConfig config_of(bool nanochat) {
  model::GptConfig config;
  config.vocab_size = kVocab;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_kv_head = 1;
  config.n_embd = 24;
  config.seq_len = 100;
  config.softcap = 15;
  if (nanochat) model::set_nanochat_extras(config);
  return config;
}

HostTensor weight_of(const ParamSpec& spec) {
  return test::random_tensor(spec.shape, spec.name, 0.3F).rounded(spec.replica);
}

// Rows of 2 to 140 tokens, for which passes have three lengths. Some rows are cropped, some share a
// prefix, and some have no scored tokens.
std::vector<data::TokenTask> tasks() {
  std::vector<data::TokenTask> out(2);
  out[0].name = "choices";
  out[1].name = "continuations";
  out[1].kind = data::TaskKind::kContinuation;
  const CounterRandom random(7, "examples");
  auto draw = [&, i = std::uint64_t{0}](std::size_t below) mutable {
    return std::size_t{random.bits(i++)} % below;
  };
  for (int example = 0; example < 23; ++example) {
    const std::size_t common = 1 + draw(100);
    std::vector<std::int32_t> start;
    for (std::size_t i = 0; i < common; ++i)
      start.push_back(static_cast<std::int32_t>(draw(kVocab)));
    std::vector<std::vector<std::int32_t>> prompts(1 + draw(4), start);
    std::vector<std::size_t> starts;
    for (auto& prompt : prompts) {
      const std::size_t more = 1 + draw(60);
      for (std::size_t i = 0; i < more; ++i)
        prompt.push_back(static_cast<std::int32_t>(draw(kVocab)));
      starts.push_back(prompt.size() - draw(more));
    }
    out[0].add(prompts, starts, draw(prompts.size()), kRowTokens, "made up");
    prompts.resize(1);
    starts = {prompts[0].size() - 1 - draw(2) % (prompts[0].size() - 1)};
    out[1].add(prompts, starts, 0, kRowTokens, "made up");
  }
  return out;
}

// Reference: computes each row alone, unpadded, with the softmax of its logits in float64.
class Reference {
 public:
  explicit Reference(model::GptConfig config) : config_(std::move(config)) {
    for (const ParamSpec& spec : model::gpt_parameters(config_))
      weights_.push_back(arena_.keep(weight_of(spec)));
    rotary_ = model::make_rotary_tables(config_, kRowTokens, arena_);
    model::fill_rotary_tables(stream_, config_, rotary_);
  }
  // Logits of a row, (tokens, vocabulary).
  std::vector<double> logits(const std::vector<std::int32_t>& tokens) {
    const auto t = std::ssize(tokens);
    test::HeapArena arena;
    const model::Gpt gpt(config_, {.b = 1, .t = t, .backward = false, .logits = true}, rotary_,
                         "one.", arena);
    const HostTensor input({1, t}, DType::kI32);
    std::ranges::copy(tokens, input.values<std::int32_t>().begin());
    gpt.forward(stream_, {weights_}, input);
    std::vector<double> out;
    for (std::int64_t i = 0; i < t; ++i) {
      const float* z = gpt.logits(stream_, {weights_}, i, i + 1).as<float>();
      out.insert(out.end(), z, z + kVocab);
    }
    return out;
  }

 private:
  model::GptConfig config_;
  test::HeapArena arena_;
  test::KernelStream stream_;
  std::vector<Tensor> weights_;
  model::RotaryTables rotary_;
};

std::vector<std::int32_t> tokens_of(const data::TokenTask& task, const data::ExampleRow& row) {
  std::vector<std::int32_t> out;
  task.read(row, out);
  return out;
}

// The token that `logits` predict after position i; lowers `margin` to the distance to the next
// likely token.
std::int32_t predicted(const std::vector<double>& logits, std::int64_t i, double& margin) {
  const auto z = std::span(logits).subspan(static_cast<std::size_t>(i * kVocab), kVocab);
  const auto best = std::ranges::max_element(z);
  for (auto other = z.begin(); other != z.end(); ++other)
    if (other != best) margin = std::min(margin, *best - *other);
  return static_cast<std::int32_t>(best - z.begin());
}

data::RowScore score_of(const std::vector<double>& logits, const std::vector<std::int32_t>& tokens,
                        const data::ExampleRow& row, double& margin) {
  data::RowScore out;
  for (std::int64_t i = row.scored; i < row.length(); ++i) {
    const auto z = std::span(logits).subspan(static_cast<std::size_t>((i - 1) * kVocab), kVocab);
    const std::int32_t target = tokens[static_cast<std::size_t>(i)];
    double sum = 0;
    for (const double logit : z)
      sum += std::exp(logit);
    out.nats += std::log(sum) - z[static_cast<std::size_t>(target)];
    out.all_predicted = out.all_predicted && predicted(logits, i - 1, margin) == target;
  }
  return out;
}

// Replaces every second continuation by the model's predictions, token by token.
void predict_some(data::TokenTask& task, Reference& reference) {
  for (std::size_t k = 0; k < task.rows.size(); k += 2) {
    const data::ExampleRow& row = task.rows[k];
    for (std::int64_t at = row.scored; at < row.length(); ++at) {
      std::vector<std::int32_t> tokens = tokens_of(task, row);
      tokens.resize(static_cast<std::size_t>(at));
      double margin = 1;
      const std::size_t place = at < row.shared_length
                                    ? row.shared + static_cast<std::size_t>(at)
                                    : row.own + static_cast<std::size_t>(at - row.shared_length);
      task.tokens[place] = predicted(reference.logits(tokens), at - 1, margin);
    }
  }
}

std::vector<std::vector<data::RowScore>> evaluate(const model::GptConfig& config,
                                                  const std::vector<data::TokenTask>& examples,
                                                  int world, std::optional<std::int64_t> rows) {
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  const std::vector<PassShape> passes = plan_passes(examples, kRowTokens, 512, rows);
  std::vector<std::vector<data::RowScore>> out;
  out.reserve(examples.size());
  for (const data::TokenTask& task : examples)
    out.emplace_back(task.rows.size(), data::RowScore{.nats = -1});
  DeviceGroup group({.world = world});
  group.run([&](RankContext& rank) {
    const InferenceRows shapes = {.passes = passes};
    PlannedArena arena(rank.device,
                       plan_inference_memory(config, params, shapes, rank.rank, world));
    InferenceState state(rank, config, params, shapes, arena);
    state.capture();
    ExampleEvaluator evaluator(rank, state, passes);
    model::fill_rotary_tables(rank.compute, config, state.rotary);
    for (std::size_t i = 0; i < params.size(); ++i) {
      const HostTensor weight = weight_of(params[i]);
      rank.compute.copy(state.weights[i], weight);
      rank.wait(rank.compute);
    }
    std::int64_t told = 0;
    for (std::size_t i = 0; i < examples.size(); ++i) {
      evaluator.run(examples[i], out[i], [&](std::int64_t done) { told = done; });
      EXPECT_EQ(told, std::ssize(examples[i].rows));
    }
  });
  return out;
}

class ExampleEvaluation : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Models, ExampleEvaluation, testing::Bool(), [](const auto& of) {
  return std::string(of.param ? "nanochat" : "plain");
});

TEST_P(ExampleEvaluation, ScoresRowsAsTheirLogitsDo) {
  const model::GptConfig config = config_of(GetParam());
  std::vector<data::TokenTask> examples = tasks();
  ASSERT_GT(examples[0].cropped, 0);
  ASSERT_EQ(plan_passes(examples, kRowTokens, 512, {}).size(), 3U);
  Reference reference(config);
  predict_some(examples[1], reference);
  const auto scores = evaluate(config, examples, 1, {});
  std::int64_t right = 0, close = 0;
  // Logits are below the soft-cap of 15. Each sums n_embd products whose inputs have been rounded a
  // few times per layer, and a loss is the logarithm of a sum of exponentials of logits, minus a
  // logit.
  const double of_a_token = 15 * test::probable(20 * (config.n_embd + kVocab));
  for (std::size_t i = 0; i < examples.size(); ++i)
    for (std::size_t k = 0; k < examples[i].rows.size(); ++k) {
      const data::ExampleRow& row = examples[i].rows[k];
      const std::vector<std::int32_t> tokens = tokens_of(examples[i], row);
      double margin = 1;
      const data::RowScore want = score_of(reference.logits(tokens), tokens, row, margin);
      EXPECT_NEAR(scores[i][k].nats, want.nats, of_a_token * (1 + row.scored_tokens()))
          << examples[i].name << " " << k;
      if (margin > 2 * of_a_token)  // otherwise rounding may decide
        EXPECT_EQ(scores[i][k].all_predicted, want.all_predicted) << examples[i].name << " " << k;
      else
        ++close;
      if (i == 1) right += want.all_predicted ? 1 : 0;
    }
  EXPECT_LE(close, 5);
  EXPECT_GE(right, std::ssize(examples[1].rows) / 2);
  EXPECT_LT(right, std::ssize(examples[1].rows));
}

TEST_P(ExampleEvaluation, DoesNotDependOnWorldOrBatch) {
  const model::GptConfig config = config_of(GetParam());
  const std::vector<data::TokenTask> examples = tasks();
  const auto one = evaluate(config, examples, 1, {});
  for (const int world : {1, 2, 3})
    for (const std::optional<std::int64_t> rows :
         {std::optional<std::int64_t>{}, std::optional<std::int64_t>{1},
          std::optional<std::int64_t>{100}}) {
      const auto other = evaluate(config, examples, world, rows);
      for (std::size_t i = 0; i < examples.size(); ++i) {
        EXPECT_EQ(data::score_task(examples[i], other[i]).accuracy,
                  data::score_task(examples[i], one[i]).accuracy);
        for (std::size_t k = 0; k < one[i].size(); ++k) {
          EXPECT_EQ(other[i][k].all_predicted, one[i][k].all_predicted) << world << " " << k;
          // The same passes give bitwise the same results.
          if (!rows) {
            EXPECT_EQ(other[i][k].nats, one[i][k].nats) << world << " " << k;
          }
        }
      }
    }
}

TEST(PassShapes, FollowTheRowsOfTheTasks) {
  const std::vector<data::TokenTask> examples = tasks();
  for (const PassShape& shape : plan_passes(examples, kRowTokens, 512, {})) {
    EXPECT_LE(shape.rows * shape.seq_len, 512);
    EXPECT_TRUE(shape.seq_len == 64 || shape.seq_len == 128 || shape.seq_len == kRowTokens);
  }
  for (const PassShape& shape : plan_passes(examples, kRowTokens, 512, 2))
    EXPECT_EQ(shape.rows, 2);
  data::TokenTask small{.name = "small"};
  small.add(std::vector<std::vector<std::int32_t>>{{1, 2}}, std::vector<std::size_t>{1}, 0, 9, "");
  const std::vector<PassShape> one = plan_passes(std::vector<data::TokenTask>{small}, 9, 512, {});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].rows, 1);
  EXPECT_EQ(one[0].seq_len, 9);
}

TEST(PassShapes, HaveAsManyTokensAsTrainingOrAsFit) {
  static std::int64_t gpu_bytes = 0;
  static const BackendPlugin plugin{.total_memory = [](int) { return gpu_bytes; }};
  constexpr std::int64_t kLong = 512;
  model::GptConfig config = config_of(false);
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  std::vector<data::TokenTask> examples(1);
  for (int i = 0; i < 200; ++i)
    examples[0].add(std::vector<std::vector<std::int32_t>>{std::vector<std::int32_t>(kLong, 1)},
                    std::vector<std::size_t>{1}, 0, kLong, "");
  const auto rows = [&](const GroupOptions& group, std::optional<std::int64_t> asked = {}) {
    const std::vector<PassShape> out = fit_passes(config, params, examples, kLong, asked, group);
    return out.size() == 1 && out[0].seq_len == kLong ? out[0].rows : -1;
  };
  EXPECT_EQ(rows({}), 8);
  EXPECT_EQ(rows({}, 3), 3);
  const GroupOptions gpu{.plugin = &plugin};
  gpu_bytes = std::int64_t{80} << 30;
  EXPECT_EQ(rows(gpu), 128);
  const std::vector<PassShape> most = {{.rows = 128, .seq_len = kLong}};
  gpu_bytes = plan_inference_memory(config, params, {.passes = most}, 0, 1).rank_bytes(1) +
              kLibraryMemory + kContextMemory;
  EXPECT_EQ(rows(gpu), 128);
  --gpu_bytes;
  EXPECT_EQ(rows(gpu), 64);
  EXPECT_EQ(rows(gpu, 128), 128);
}

}  // namespace
}  // namespace muo::trainer
