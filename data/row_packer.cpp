#include "data/row_packer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace muo::data {

RowPacker::RowPacker(std::int64_t row_tokens, std::function<std::optional<TokenSpan>()> next)
    : row_tokens_(row_tokens), next_(std::move(next)) {
  MUO_CHECK(row_tokens > 0, "row_tokens is ", row_tokens);
  waiting_.reserve(kWaiting + kRefill);
  merged_.reserve(kWaiting + kRefill);
  taken_.reserve(kRefill);
  pieces_.reserve(static_cast<std::size_t>(row_tokens));
}

void RowPacker::refill() {
  while (std::ssize(waiting_) < kWaiting) {
    taken_.clear();
    while (std::ssize(taken_) < kRefill) {
      const std::optional<TokenSpan> document = next_();
      if (!document) break;
      taken_.push_back(*document);
    }
    if (taken_.empty()) return;
    std::ranges::stable_sort(taken_, {}, &TokenSpan::count);
    merged_.clear();
    std::ranges::merge(waiting_, taken_, std::back_inserter(merged_), {}, &TokenSpan::count,
                       &TokenSpan::count);
    std::swap(waiting_, merged_);
  }
}

std::span<const TokenSpan> RowPacker::next_row() {
  pieces_.clear();
  for (std::int64_t left = row_tokens_; left > 0;) {
    refill();
    if (waiting_.empty()) break;
    auto chosen = waiting_.begin();  // the shortest; the oldest one among equals
    const auto longer = std::ranges::upper_bound(waiting_, left, {}, &TokenSpan::count);
    if (longer != waiting_.begin())
      chosen = std::ranges::lower_bound(waiting_.begin(), longer, std::prev(longer)->count, {},
                                        &TokenSpan::count);
    const std::int64_t count = std::min(chosen->count, left);
    pieces_.push_back({.begin = chosen->begin, .count = count});
    document_tokens_ += chosen->count;
    packed_tokens_ += count;
    left -= count;
    waiting_.erase(chosen);
  }
  return pieces_;
}

}  // namespace muo::data
