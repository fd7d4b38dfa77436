#include "graphs/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graphs/capture.h"
#include "graphs/run_state.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include "support/toy_training.h"
#include "trainer/infer/inference.h"

namespace muo::graphs {
namespace {

constexpr std::int64_t kVocab = 67;
using Tokens = std::vector<std::int32_t>;
using Logits = std::vector<float>;

model::GptConfig small(bool nanochat) {
  model::GptConfig c;
  c.vocab_size = kVocab;
  c.n_layer = 2;
  c.n_head = 2;
  c.n_kv_head = 1;
  c.n_embd = 32;
  c.seq_len = 40;  // more than the shortest captured length
  if (nanochat) model::set_nanochat_extras(c);
  return c;
}

Tokens random_context(std::int64_t count, const std::string& name) {
  const test::HostTensor tokens = test::random_tokens(count, kVocab, name);
  return {tokens.values<std::int32_t>().begin(), tokens.values<std::int32_t>().end()};
}

Tokens part(const Tokens& all, std::size_t begin, std::size_t end) {
  const std::span<const std::int32_t> some = std::span(all).subspan(begin, end - begin);
  return {some.begin(), some.end()};
}

// Runs `body` on the backend of MUO_TEST_BACKEND, with a decoder of a model with fixed random
// weights.
struct Form {
  std::int64_t rows = 1;
  bool graph = true;
  DType dtype = DType::kF32;
  bool nanochat = true;
  std::int32_t document_token = -1;
};
void with_decoder(const Form& form, const std::function<void(Decoder&)>& body) {
  model::GptConfig config = small(form.nanochat);
  config.dtype = form.dtype;
  config.document_token = form.document_token;
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  DeviceGroup group(test::tested_group(1));
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device,
                       trainer::plan_inference_memory(config, params, {.sample = form.rows}, 0, 1));
    trainer::InferenceState state(rank, config, params, {.sample = form.rows}, arena);
    warm_up_and_capture(rank, arena, state, form.graph);
    model::fill_rotary_tables(rank.compute, config, state.rotary);
    for (std::size_t i = 0; i < params.size(); ++i) {
      const test::HostTensor values =
          test::random_tensor(params[i].shape, params[i].name, 0.2F).rounded(params[i].replica);
      rank.compute.copy(state.weights[i], values);
      rank.wait(rank.compute);
    }
    body(*state.decoder);
  });
}

Logits begin(Decoder& decoder, std::int64_t row, const Tokens& context) {
  Logits out(kVocab);
  decoder.begin(row, context, out);
  return out;
}

// Logits of row 0 after each token.
std::vector<Logits> follow(Decoder& decoder, const Tokens& context, const Tokens& next) {
  std::vector<Logits> out = {begin(decoder, 0, context)};
  const auto rows = static_cast<std::size_t>(decoder.rows());
  for (const std::int32_t token : next) {
    Tokens tokens = {token};
    tokens.resize(rows, Decoder::kNoToken);
    Logits all(rows * kVocab);
    decoder.step(tokens, all);
    out.emplace_back(all.begin(), all.begin() + kVocab);
  }
  return out;
}

TEST(Decoder, ReplayIsBitwiseWhatItIsEagerly) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool nanochat : {false, true}) {
      const Tokens context = random_context(3, "context"), next = random_context(20, "next");
      std::vector<Logits> replayed, eager;
      with_decoder({.dtype = dtype, .nanochat = nanochat},
                   [&](Decoder& d) { replayed = follow(d, context, next); });
      with_decoder({.graph = false, .dtype = dtype, .nanochat = nanochat},
                   [&](Decoder& d) { eager = follow(d, context, next); });
      EXPECT_EQ(replayed, eager) << name_of(dtype);
    }
}

// A step's logits equal those of a row that begins with all tokens, up to rounding: 2 layers of
// several sums of at most 128 terms, of values of similar size.
TEST(Decoder, AStepGoesOnWhereTheRowIs) {
  const Tokens all = random_context(36, "all");
  with_decoder({}, [&](Decoder& decoder) {
    constexpr std::size_t kGiven = 5;
    const std::vector<Logits> got =
        follow(decoder, part(all, 0, kGiven), part(all, kGiven, all.size()));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Logits want = begin(decoder, 0, part(all, 0, kGiven + i));
      EXPECT_LE(test::relative_error<float>(got[i], std::vector<double>(want.begin(), want.end())),
                test::probable(1000))
          << i;
    }
  });
}

// Documents begin in the context, at its end, in the following tokens, and in the kept part of a
// full row.
TEST(Decoder, AStepGoesOnInTheRowsDocument) {
  constexpr std::int32_t kDocument = 3;
  Tokens all = random_context(43, "all");
  std::ranges::replace(all, kDocument, kDocument + 1);
  for (const std::size_t i : {2U, 4U, 11U, 12U, 33U, 41U})
    all[i] = kDocument;
  const Form form{.rows = 2, .document_token = kDocument};
  std::vector<Logits> eager;
  with_decoder({.rows = 2, .graph = false, .document_token = kDocument},
               [&](Decoder& d) { eager = follow(d, part(all, 0, 5), part(all, 5, all.size())); });
  with_decoder(form, [&](Decoder& decoder) {
    const std::vector<Logits> got = follow(decoder, part(all, 0, 5), part(all, 5, all.size()));
    EXPECT_EQ(got, eager);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t end = 5 + i;
      // A full row has begun again with the last half of its context.
      const Logits want = begin(decoder, 1, part(all, end <= 40 ? 0 : 21, end));
      EXPECT_LE(test::relative_error<float>(got[i], std::vector<double>(want.begin(), want.end())),
                test::probable(1000))
          << end;
    }
    begin(decoder, 0, part(all, 0, 14));
    decoder.copy_row(0, 1);
    Logits out(2 * kVocab);
    decoder.step(Tokens{Decoder::kNoToken, all[14]}, out);
    EXPECT_LE(test::relative_error<float>(std::span(out).last(kVocab),
                                          std::vector<double>(got[10].begin(), got[10].end())),
              test::probable(1000));
  });
  // Logits of whole rows differ from that.
  with_decoder({.rows = 2},
               [&](Decoder& d) { EXPECT_NE(begin(d, 0, part(all, 0, 14)), eager[9]); });
}

TEST(Decoder, ARowHasTheSameBitsWhateverTheOthersAre) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tokens context = random_context(7, "context"), next = random_context(12, "next");
    std::vector<Logits> alone;
    with_decoder({.dtype = dtype}, [&](Decoder& d) { alone = follow(d, context, next); });
    with_decoder({.rows = 3, .dtype = dtype}, [&](Decoder& decoder) {
      begin(decoder, 0, random_context(30, "other"));
      EXPECT_EQ(begin(decoder, 1, context), alone[0]);
      begin(decoder, 2, random_context(2, "another"));
      for (std::size_t i = 0; i < next.size(); ++i) {
        // The first row becomes full and begins again; the last one pauses in every other step.
        const Tokens tokens = {static_cast<std::int32_t>(i), next[i],
                               i % 2 == 0 ? 3 : Decoder::kNoToken};
        Logits out(3 * kVocab);
        decoder.step(tokens, out);
        EXPECT_EQ(Logits(out.begin() + kVocab, out.begin() + 2 * kVocab), alone[i + 1]) << i;
      }
    });
  }
}

TEST(Decoder, ARowThatPausedGoesOn) {
  const Tokens context = random_context(4, "context"), next = random_context(6, "next");
  std::vector<Logits> want;
  with_decoder({}, [&](Decoder& d) { want = follow(d, context, next); });
  with_decoder({.rows = 2}, [&](Decoder& decoder) {
    begin(decoder, 0, random_context(9, "other"));
    begin(decoder, 1, context);
    Logits out(2 * kVocab);
    for (std::size_t i = 0; i < next.size(); ++i) {
      decoder.step(Tokens{5, Decoder::kNoToken}, out);
      decoder.step(Tokens{Decoder::kNoToken, next[i]}, out);
      EXPECT_EQ(Logits(out.begin() + kVocab, out.end()), want[i + 1]) << i;
    }
  });
}

TEST(Decoder, ACopiedRowIsTheSame) {
  const Tokens context = random_context(11, "context"), next = random_context(6, "next");
  std::vector<Logits> want;
  with_decoder({}, [&](Decoder& d) { want = follow(d, context, next); });
  with_decoder({.rows = 2}, [&](Decoder& decoder) {
    begin(decoder, 0, context);
    decoder.copy_row(0, 1);
    Logits out(2 * kVocab);
    for (std::size_t i = 0; i < next.size(); ++i) {
      decoder.step(Tokens{9, next[i]}, out);
      EXPECT_EQ(Logits(out.begin() + kVocab, out.end()), want[i + 1]) << i;
    }
  });
}

TEST(Decoder, AFullRowBeginsAgainWithItsLastHalf) {
  const model::GptConfig config = small(true);
  const auto full = static_cast<std::size_t>(config.seq_len);
  const Tokens all = random_context(config.seq_len + 3, "all");
  with_decoder({}, [&](Decoder& decoder) {
    const std::vector<Logits> got = follow(decoder, part(all, 0, 30), part(all, 30, all.size()));
    const Tokens half = part(all, full + 1 - full / 2, full + 1);
    const std::vector<Logits> want = follow(decoder, half, part(all, full + 1, all.size()));
    EXPECT_EQ(std::vector<Logits>(got.end() - 3, got.end()), want);
  });
}

TEST(Decoder, ALongContextKeepsItsEnd) {
  const model::GptConfig config = small(true);
  const Tokens all = random_context(config.seq_len + 9, "all");
  with_decoder({}, [&](Decoder& decoder) {
    EXPECT_EQ(begin(decoder, 0, all), begin(decoder, 0, part(all, 9, all.size())));
  });
}

// Within a training run, in which sharded weights are gathered for every token.
std::vector<Logits> in_training(test::ToyTraining run) {
  const auto vocab = static_cast<std::size_t>(test::toy_config(run).model.vocab_size);
  std::vector<Logits> out;
  run.before_step = [&](RankContext& rank, RunState& state, int step) {
    if (step == 0) return;
    state.step.flush();  // as the trainer does between steps
    if (rank.rank != 0 && run.shard != "weights") return;
    std::vector<Logits> mine;
    Logits logits(vocab);
    state.decoder->begin(0, Tokens{1, 2, 0}, logits);
    mine.push_back(logits);
    for (const std::int32_t token : {2, 1, 0, 0, 2}) {
      state.decoder->step(Tokens{token}, logits);
      mine.push_back(logits);
    }
    if (rank.rank == 0) out = mine;
  };
  test::train(run);
  return out;
}

TEST(Decoder, OfShardedWeightsIsBitwiseThatOfReplicas) {
  test::ToyTraining run{.world = 2, .steps = 2, .nanochat_bf16 = true};
  const std::vector<Logits> want = in_training(run);
  EXPECT_EQ(want.size(), 6U);
  run.shard = "weights";
  EXPECT_EQ(in_training(run), want);
  run.random_order = 7;
  EXPECT_EQ(in_training(run), want);
  run.random_order = {};
  run.nan_between_steps = true;
  EXPECT_EQ(in_training(run), want);
  run.graph = false;
  EXPECT_EQ(in_training(run), want);
}

}  // namespace
}  // namespace muo::graphs
