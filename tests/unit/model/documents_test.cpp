// A row of packed documents, each of which begins with the document token, has the losses and
// gradients of the single documents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/gpt.h"
#include "model/parameters.h"
#include "support/heap_arena.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::model {
namespace {

using test::HostTensor;

constexpr std::int32_t kVocab = 67;
constexpr std::int32_t kDocumentToken = 3;
constexpr std::int64_t kRows = 2;
constexpr std::int64_t kSeqLen = 160;

// The short window is 128 positions, fewer than the longest document has.
GptConfig nanochat() {
  GptConfig c;
  c.vocab_size = kVocab;
  c.n_layer = 4;
  c.n_head = 2;
  c.n_kv_head = 1;
  c.n_embd = 32;
  c.seq_len = kSeqLen;
  set_nanochat_extras(c);
  return c;
}

GptConfig within_documents() {
  GptConfig c = nanochat();
  c.document_token = kDocumentToken;
  return c;
}

// Positions at which documents begin in the batch. The second row begins in the
// middle of a document.
const std::vector<std::int64_t> kBegin = {0, 1, 140, 142, 160, 190, 257};

struct Batch {
  HostTensor tokens = test::random_tokens(kRows * kSeqLen, kVocab, "tokens");
  HostTensor targets = test::random_tokens(kRows * kSeqLen, kVocab, "targets");

  Batch() {
    for (std::int32_t& token : tokens.values<std::int32_t>())
      if (token == kDocumentToken) ++token;
    for (const std::int64_t i : kBegin)
      if (i != kSeqLen) tokens.values<std::int32_t>()[static_cast<std::size_t>(i)] = kDocumentToken;
  }
};

struct Result {
  std::vector<double> losses;
  std::vector<std::vector<double>> gradients;  // by parameter

  // Every parameter has equal weight, whatever the size of its gradient is.
  [[nodiscard]] double gradient_error(const Result& want) const {
    double sum = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      sum += std::pow(test::relative_error(gradients[i], want.gradients[i]), 2);
    return std::sqrt(sum / static_cast<double>(gradients.size()));
  }
};

// Moves all weights by one unit in the last place, up or down.
void move(const HostTensor& weight, std::uint64_t seed, const std::string& name) {
  const CounterRandom random(seed, name);
  std::uint64_t i = 0;
  for (float& x : weight.values())
    x = std::nextafter(x, (random.bits(i++) & 1) != 0 ? INFINITY : -INFINITY);
}

class Model {
 public:
  explicit Model(GptConfig config, std::uint64_t perturbation = 0) : config_(std::move(config)) {
    for (const ParamSpec& spec : gpt_parameters(config_)) {
      HostTensor weight = test::random_tensor(spec.shape, spec.name, 0.2F);
      if (perturbation != 0) move(weight, perturbation, spec.name);
      weights_.push_back(arena_.keep(std::move(weight)));
      gradients_.push_back(arena_.keep(HostTensor(spec.shape)));
    }
    rotary_ = make_rotary_tables(config_, kSeqLen, arena_);
    fill_rotary_tables(stream_, config_, rotary_);
  }

  // Adds positions [begin, begin + b t) of the batch as b rows; gradients are accumulated.
  void add(std::int64_t begin, std::int64_t b, std::int64_t t, const Recompute& recompute = {}) {
    const Gpt gpt(config_, {.b = b, .t = t, .recompute = recompute}, rotary_, "", arena_);
    const auto part = [&](const HostTensor& of) {
      return of.tensor().elements(begin, b * t).view({b, t});
    };
    const Tensor tokens = part(batch_.tokens);
    gpt.forward(stream_, {weights_}, tokens);
    gpt.losses_and_backward(stream_, {weights_}, tokens, part(batch_.targets),
                            HostTensor({1}, std::vector{0.125F}),
                            {.gradients = gradients_, .accumulate = !losses_.empty()});
    const float* losses = gpt.row_losses().as<float>();
    losses_.insert(losses_.end(), losses, losses + b * t);
  }
  [[nodiscard]] Result result() const {
    Result out{.losses = losses_, .gradients = {}};
    for (const Tensor& g : gradients_)
      out.gradients.emplace_back(g.as<float>(), g.as<float>() + g.numel());
    return out;
  }

 private:
  GptConfig config_;
  Batch batch_;
  test::KernelStream stream_;
  test::HeapArena arena_;
  std::vector<Tensor> weights_, gradients_;
  RotaryTables rotary_;
  std::vector<double> losses_;
};

Result packed(const GptConfig& config, const Recompute& recompute = {},
              std::uint64_t perturbation = 0) {
  Model model(config, perturbation);
  model.add(0, kRows, kSeqLen, recompute);
  return model.result();
}

TEST(ExtrasDocuments, APackedRowEqualsItsDocumentsOneByOne) {
  Model one_by_one(nanochat());
  for (std::size_t i = 0; i < kBegin.size(); ++i) {
    const std::int64_t end = i + 1 < kBegin.size() ? kBegin[i + 1] : kRows * kSeqLen;
    one_by_one.add(kBegin[i], 1, end - kBegin[i]);
  }
  const Result want = one_by_one.result();
  const Result got = packed(within_documents());
  // 4 times the median distance of 8 runs with weights moved by one unit in the last place
  // (decision derived-tolerances).
  std::vector<double> losses, gradients;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Result moved = packed(within_documents(), {}, seed);
    losses.push_back(test::relative_error(moved.losses, got.losses));
    gradients.push_back(moved.gradient_error(got));
  }
  const auto tolerance = [](std::vector<double>& distances) {
    std::ranges::sort(distances);
    return 4 * (distances[3] + distances[4]) / 2;
  };
  EXPECT_LE(test::relative_error(got.losses, want.losses), tolerance(losses));
  EXPECT_LE(got.gradient_error(want), tolerance(gradients));
  // Attention and smear over whole rows differ by much more.
  const Result whole = packed(nanochat());
  EXPECT_GT(test::relative_error(whole.losses, want.losses), 100 * tolerance(losses));
  EXPECT_GT(whole.gradient_error(want), 100 * tolerance(gradients));
}

TEST(ExtrasDocuments, RecomputedActivationsAreBitwiseTheSame) {
  const Result want = packed(within_documents());
  for (const Recompute recompute :
       {Recompute{.mlps = 4}, {.blocks = 4}, {.blocks = 1, .mlps = 2}}) {
    const Result got = packed(within_documents(), recompute);
    EXPECT_EQ(got.losses, want.losses) << recompute.blocks;
    EXPECT_EQ(got.gradients, want.gradients) << recompute.blocks;
  }
}

// A single document has the same bits as a row without documents.
TEST(ExtrasDocuments, WithoutTheTokenNothingChanges) {
  Model with(within_documents()), without(nanochat());
  with.add(2, 1, 100);
  without.add(2, 1, 100);
  const Result got = with.result(), want = without.result();
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.gradients, want.gradients);
}

}  // namespace
}  // namespace muo::model
