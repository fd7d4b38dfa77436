#include "optim/element_ranges.h"

#include <algorithm>

namespace muo::optim {

Range intersection(Range a, Range b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

void ElementRanges::add(Range range) {
  if (range.size() == 0) return;
  if (!ranges_.empty() && ranges_.back().end == range.begin)
    ranges_.back().end = range.end;
  else
    ranges_.push_back(range);
}

std::int64_t ElementRanges::size() const {
  std::int64_t size = 0;
  for (const Range& range : ranges_)
    size += range.size();
  return size;
}

std::vector<Range> ElementRanges::within(Range range) const {
  std::vector<Range> out;
  const auto ends_before = [](const Range& have, std::int64_t begin) { return have.end <= begin; };
  auto have = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin, ends_before);
  for (; have != ranges_.end() && have->begin < range.end; ++have)
    if (const Range both = intersection(*have, range); both.size() > 0) out.push_back(both);
  return out;
}

Tensor ElementRanges::slice(const Tensor& tensor, Range range) const {
  std::int64_t before = 0;
  for (const Range& have : ranges_) {
    if (have.begin <= range.begin && range.end <= have.end)
      return tensor.elements(before + range.begin - have.begin, range.size());
    before += have.size();
  }
  MUO_CHECK(range.size() == 0, "elements [", range.begin, ", ", range.end, ") of a bucket");
  return tensor.elements(0, 0);  // its address does not matter
}

void zero_outside(Stream& stream, const Tensor& tensor, std::int64_t origin,
                  std::span<const Range> ranges) {
  std::int64_t end = 0;
  const auto zero_until = [&](std::int64_t begin) {
    if (end < begin) stream.zero(tensor.elements(end, begin - end));
  };
  for (const Range range : ranges) {
    zero_until(range.begin - origin);
    end = range.end - origin;
  }
  zero_until(tensor.numel());
}

}  // namespace muo::optim
