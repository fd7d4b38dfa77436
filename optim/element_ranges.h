#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo::optim {

// Some adjacent elements of a bucket's full space.
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
  // What of a tensor over these ranges covers `range`, which lies in one of the ranges.
  [[nodiscard]] Tensor slice(const Tensor& tensor, Range range) const;

 private:
  std::vector<Range> ranges_;
};

// Zeroes the elements of `tensor`, which begins at `origin` of the full space, that none of the
// ascending ranges covers.
void zero_outside(Stream& stream, const Tensor& tensor, std::int64_t origin,
                  std::span<const Range> ranges);

}  // namespace muo::optim
