#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tensor.h"

namespace muo {

// A part of a bucket's full space.
struct Range {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};
Range intersection(Range a, Range b);  // empty: begin == end

// What of a bucket's full space a tensor covers: some ranges of it, ascending, one after another.
class ElementRanges {
 public:
  ElementRanges() = default;
  explicit ElementRanges(Range range) { add(range); }
  void add(Range range);  // behind the others; empty ones are left out
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }
  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] std::vector<Range> within(Range range) const;  // what it has of the range
  // The part of a tensor over these ranges that covers `range`, which lies in one of the ranges.
  [[nodiscard]] Tensor part(const Tensor& tensor, Range range) const;

 private:
  std::vector<Range> ranges_;
};

}  // namespace muo
