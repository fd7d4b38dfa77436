#include "trainer/infer/draw_token.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace muo::trainer {
namespace {

// Candidates; the first ranked() of them are sorted by decreasing probability.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  [[nodiscard]] std::size_t size() const { return order_.size(); }
  [[nodiscard]] std::size_t ranked() const { return ranked_; }
  [[nodiscard]] std::int32_t token(std::size_t i) const { return order_[i]; }
  // Sorts the first `count` candidates, if they are not sorted yet.
  void rank(std::size_t count) {
    if (count <= ranked_) return;
    ranked_ = std::min(count, size());
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(ranked_),
                      order_.end(), [this](std::int32_t a, std::int32_t b) {
                        const float x = logit(a), y = logit(b);
                        return x != y ? x > y : a < b;
                      });
  }
  void keep(std::size_t count) {
    rank(count);
    order_.resize(count);
  }

 private:
  [[nodiscard]] float logit(std::int32_t token) const {
    return logits_[static_cast<std::size_t>(token)];
  }

  std::span<const float> logits_;
  std::vector<std::int32_t> order_;
  std::size_t ranked_ = 0;
};

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options, double u) {
  const double top = static_cast<double>(*std::ranges::max_element(logits));
  if (options.temperature <= 0)
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  Ranking ranking(logits);
  const auto weight = [&](std::size_t i) {
    const float logit = logits[static_cast<std::size_t>(ranking.token(i))];
    return std::exp((static_cast<double>(logit) - top) / options.temperature);
  };
  const auto total = [&] {
    double sum = 0;
    for (std::size_t i = 0; i < ranking.size(); ++i)
      sum += weight(i);
    return sum;
  };
  // Truncates the list before the first candidate for which ends(sum of the weights before it, its
  // weight) holds.
  const auto cut = [&](const auto& ends) {
    double before = 0;
    for (std::size_t i = 0; i < ranking.size(); ++i) {
      if (i == ranking.ranked()) ranking.rank(std::max<std::size_t>(64, 8 * i));
      if (ends(before, weight(i))) return ranking.keep(i);
      before += weight(i);
    }
  };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < ranking.size())
    ranking.keep(static_cast<std::size_t>(options.top_k));
  if (options.top_p < 1) {
    const double enough = options.top_p * total();
    cut([&](double before, double) { return before > 0 && before >= enough; });
  }
  if (options.min_p > 0) cut([&](double, double w) { return w < options.min_p; });
  double rest = u * total();
  for (std::size_t i = 0; i < ranking.size(); ++i)
    if ((rest -= weight(i)) < 0) return ranking.token(i);
  return ranking.token(ranking.size() - 1);
}

}  // namespace muo::trainer
