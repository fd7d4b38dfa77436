#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo::optim {

// Adjacent elements of a bucket's full space.
struct Range {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};
Range intersection(Range a, Range b);  // if empty, begin == end

// The part of a bucket's full space that a tensor covers: ascending ranges, stored one
// after the other.
class ElementRanges {
 public:
  ElementRanges() = default;
  explicit ElementRanges(Range range) { add(range); }
  void add(Range range);  // must follow the others; an empty range is ignored
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }
  [[nodiscard]] std::int64_t size() const;
  // The parts of `range` that are covered.
  [[nodiscard]] std::vector<Range> within(Range range) const;
  // Given a tensor over these ranges, returns its part for `range`, which must be
  // within one of them.
  [[nodiscard]] Tensor slice(const Tensor& tensor, Range range) const;

 private:
  std::vector<Range> ranges_;
};

// Zeroes the elements of `tensor` that none of the ascending ranges covers. `tensor` begins at
// `origin` of the full space.
void zero_outside(Stream& stream, const Tensor& tensor, std::int64_t origin,
                  std::span<const Range> ranges);

}  // namespace muo::optim
