#include "app/train/sample_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "base/philox.h"
#include "data/token_data.h"

namespace muo {
namespace {

// The index drawn from `logits` by a uniform number u in [0, 1).
std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options, float u) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](std::int32_t i) {
    return static_cast<double>(logits[static_cast<std::size_t>(i)]);
  };
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    return value(a) != value(b) ? value(a) > value(b) : a < b;
  };
  if (options.temperature <= 0) return *std::min_element(order.begin(), order.end(), more_likely);
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < order.size()) {
    std::nth_element(order.begin(), order.begin() + options.top_k - 1, order.end(), more_likely);
    order.resize(static_cast<std::size_t>(options.top_k));
  }
  const double top = value(*std::min_element(order.begin(), order.end(), more_likely));
  double total = 0;
  std::vector<double> weights;
  for (const std::int32_t i : order)
    total += weights.emplace_back(std::exp((value(i) - top) / options.temperature));
  double rest = static_cast<double>(u) * total;
  for (std::size_t i = 0; i < order.size(); ++i)
    if ((rest -= weights[i]) < 0) return order[i];
  return order.back();
}

}  // namespace

std::string sample_text(Decoder& decoder, const GptConfig& config, const std::string& prompt,
                        const SamplingOptions& options) {
  std::vector<std::int32_t> tokens = {kBosToken};
  for (const char c : prompt)
    tokens.push_back(static_cast<unsigned char>(c));
  const CounterRandom random(options.seed, "sample");
  std::vector<float> logits(static_cast<std::size_t>(config.vocab_size));
  std::string text;
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    if (i == 0)
      decoder.begin(0, tokens, logits);
    else
      decoder.step(std::span(tokens).last(1), logits);
    const std::int32_t token =
        draw_token(logits, options, random.uniform(static_cast<std::uint64_t>(i)));
    if (token == kBosToken) break;
    tokens.push_back(token);
    if (token < kBosToken) text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace muo
