// A row that is decoded position by position from a cache has the logits of the whole pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/gpt.h"
#include "model/kv_cache.h"
#include "support/errors.h"
#include "support/heap_arena.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::model {
namespace {

using test::HostTensor;

constexpr std::int32_t kVocab = 67;
constexpr std::int64_t kRows = 2;
constexpr std::int32_t kDocumentToken = 11;

struct Case {
  std::string name;
  GptConfig config;
  // By row: the number of positions filled by one pass, and of all positions.
  std::int64_t prefilled[kRows], positions[kRows];
};

GptConfig small() {
  GptConfig c;
  c.vocab_size = kVocab;
  c.n_layer = 3;
  c.n_head = 4;
  c.n_kv_head = 2;
  c.n_embd = 40;
  c.seq_len = 12;
  return c;
}

GptConfig nanochat() {
  GptConfig c = small();
  set_nanochat_extras(c);
  return c;
}

// The short window is 128 positions; rows are longer than 129.
GptConfig long_rows() {
  GptConfig c = nanochat();
  c.n_layer = 2;
  c.window_pattern = "SL";
  c.seq_len = 136;
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> out;
  const auto add = [&](std::string name, const GptConfig& config) {
    out.push_back({std::move(name), config, {5, 0}, {12, 9}});
  };
  add("plain", small());
  add("nanochat", nanochat());
  GptConfig c = small();
  c.n_kv_head = 4;
  c.softcap = 0;
  add("one group, no soft-cap", c);
  for (const auto& [name, on] : {std::pair{"smear", &GptConfig::smear},
                                 std::pair{"value embeddings", &GptConfig::value_embeddings},
                                 std::pair{"backout", &GptConfig::backout},
                                 std::pair{"residual lambdas", &GptConfig::resid_lambdas},
                                 std::pair{"embedding lambdas", &GptConfig::x0_lambdas}}) {
    c = small();
    c.*on = true;
    add(name, c);
  }
  out.push_back({"over the window's border", long_rows(), {126, 131}, {134, 136}});
  // Documents begin in the prefilled part and in the rest, at the first position of a row or later.
  c = nanochat();
  c.document_token = kDocumentToken;
  add("documents", c);
  return out;
}

// Moves all weights by one unit in the last place, up or down.
void move(const HostTensor& weight, std::uint64_t seed, const std::string& name) {
  const CounterRandom random(seed, name);
  std::uint64_t i = 0;
  if (weight.tensor().dtype == DType::kF32)
    for (float& x : weight.values())
      x = std::nextafter(x, (random.bits(i++) & 1) != 0 ? INFINITY : -INFINITY);
  else
    for (BF16& x : weight.values<BF16>())
      x.bits = static_cast<std::uint16_t>(x.bits + ((random.bits(i++) & 1) != 0 ? 1 : -1));
}

class Model {
 public:
  Model(Case of, DType dtype, std::uint64_t perturbation = 0) : case_(std::move(of)) {
    case_.config.dtype = dtype;
    for (const ParamSpec& spec : gpt_parameters(config())) {
      HostTensor weight = test::random_tensor(spec.shape, spec.name, 0.2F).rounded(spec.replica);
      if (perturbation != 0) move(weight, perturbation, spec.name);
      weights_.push_back(arena_.keep(std::move(weight)));
    }
    rotary_ = make_rotary_tables(config(), config().seq_len, arena_);
    fill_rotary_tables(stream_, config(), rotary_);
    tokens_ = test::random_tokens(kRows * config().seq_len, kVocab, "tokens");
    if (config().document_token < 0) return;
    for (const std::int64_t i : {2, 7, 8, 12, 15})  // among all positions of both rows
      tokens_.values<std::int32_t>()[static_cast<std::size_t>(i)] = config().document_token;
  }

  // The logits of each row's positions, concatenated.
  std::vector<double> whole() {
    const Gpt gpt = make({.b = 1, .t = config().seq_len, .backward = false, .logits = true});
    std::vector<double> out;
    for (std::int64_t row = 0; row < kRows; ++row) {
      gpt.forward(stream_, {weights_}, row_of_tokens(row));
      take(out, gpt, 0, case_.positions[row]);
    }
    return out;
  }

  // The same from the cache: logits of `prefilled` positions from one pass, then those of single
  // steps, in which both rows take part.
  std::vector<double> cached() {
    const KvCache cache(config(), kRows, "", arena_);
    std::vector<std::vector<double>> out(kRows);
    const Gpt pass = make({.b = 1, .t = config().seq_len, .backward = false, .logits = true});
    for (std::int64_t row = 0; row < kRows; ++row) {
      if (case_.prefilled[row] == 0) continue;
      const HostTensor slot({1}, std::vector{static_cast<std::int32_t>(row)});
      pass.prefill(stream_, {weights_}, row_of_tokens(row), cache, slot);
      take(out[static_cast<std::size_t>(row)], pass, 0, case_.prefilled[row]);
    }
    const Gpt step = make({.b = kRows, .t = 1, .backward = false, .logits = true, .decode = true});
    for (std::int64_t i = 0;; ++i) {
      // A row that is complete repeats its last position.
      const HostTensor tokens({kRows}, DType::kI32), previous({kRows}, DType::kI32),
          positions({kRows}, DType::kI32), starts({kRows}, DType::kI32);
      bool any = false;
      for (std::int64_t row = 0; row < kRows; ++row) {
        const std::int64_t last = case_.positions[row] - 1;
        const std::int64_t at = std::min(case_.prefilled[row] + i, last);
        any = any || case_.prefilled[row] + i <= last;
        const auto index = static_cast<std::size_t>(row);
        positions.values<std::int32_t>()[index] = static_cast<std::int32_t>(at);
        tokens.values<std::int32_t>()[index] = token(row, at);
        previous.values<std::int32_t>()[index] = at > 0 ? token(row, at - 1) : 0;
        std::int64_t start = at;
        while (start > 0 && token(row, start) != config().document_token)
          --start;
        starts.values<std::int32_t>()[index] = static_cast<std::int32_t>(start);
      }
      if (!any) break;
      step.decode(stream_, {weights_},
                  {.tokens = tokens,
                   .previous = previous,
                   .positions = positions,
                   .starts = config().document_token < 0 ? Tensor{} : starts.tensor()},
                  cache);
      for (std::int64_t row = 0; row < kRows; ++row)
        if (case_.prefilled[row] + i < case_.positions[row])
          take(out[static_cast<std::size_t>(row)], step, row, row + 1);
    }
    out[0].insert(out[0].end(), out[1].begin(), out[1].end());
    return out[0];
  }

 private:
  [[nodiscard]] const GptConfig& config() const { return case_.config; }
  Gpt make(const Gpt::Size& size) { return {config(), size, rotary_, "", arena_}; }
  [[nodiscard]] Tensor row_of_tokens(std::int64_t row) const {
    return tokens_.tensor()
        .elements(row * config().seq_len, config().seq_len)
        .view({1, config().seq_len});
  }
  [[nodiscard]] std::int32_t token(std::int64_t row, std::int64_t at) const {
    return row_of_tokens(row).as<std::int32_t>()[at];
  }
  void take(std::vector<double>& out, const Gpt& gpt, std::int64_t begin, std::int64_t end) {
    const Tensor logits = gpt.logits(stream_, {weights_}, begin, end);
    for (std::int64_t i = 0; i < end - begin; ++i) {
      const float* row = logits.row(i).as<float>();
      out.insert(out.end(), row, row + kVocab);
    }
  }

  Case case_;
  test::KernelStream stream_;
  test::HeapArena arena_;
  std::vector<Tensor> weights_;
  RotaryTables rotary_;
  HostTensor tokens_;
};

// 4 times the median distance of 8 whole passes with weights moved by one unit in the last place
// (decision derived-tolerances).
double tolerance(const Case& of, DType dtype, const std::vector<double>& want) {
  std::vector<double> distances;
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    distances.push_back(test::relative_error(Model(of, dtype, seed).whole(), want));
  std::ranges::sort(distances);
  return 4 * (distances[3] + distances[4]) / 2;
}

TEST(ExtrasDecode, LogitsAreThoseOfTheWholePass) {
  for (const Case& of : cases())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::vector<double> want = Model(of, dtype).whole();
      EXPECT_LE(test::relative_error(Model(of, dtype).cached(), want), tolerance(of, dtype, want))
          << of.name << ", " << name_of(dtype);
    }
}

TEST(ExtrasDecode, RefusesDocumentsWithoutTheirStarts) {
  GptConfig config = small();
  config.document_token = kDocumentToken;
  test::HeapArena arena;
  const Gpt gpt(config, {.b = 1, .t = 1, .backward = false, .logits = true, .decode = true},
                make_rotary_tables(config, config.seq_len, arena), "", arena);
  test::KernelStream stream;
  const KvCache cache(config, 1, "", arena);
  const WeightSource none{.weights = {}, .before_use = [](std::size_t) { MUO_FAIL("read"); }};
  EXPECT_THAT(test::message_of<Error>([&] { gpt.decode(stream, none, {}, cache); }),
              ::testing::HasSubstr("decode() with documents needs step.starts"));
}

// The comparison above detects angles that are off by a thousandth of the base.
TEST(ExtrasDecode, TheToleranceIsBelowTheEffectOfASmallMistake) {
  for (const Case& of : cases()) {
    Model model(of, DType::kF32);
    const std::vector<double> want = model.whole();
    Case other = of;
    other.config.rope_base *= 1.001;
    EXPECT_GT(test::relative_error(Model(other, DType::kF32).whole(), want),
              tolerance(of, DType::kF32, want))
        << of.name;
  }
}

}  // namespace
}  // namespace muo::model
