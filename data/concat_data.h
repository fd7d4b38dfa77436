#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/token_data.h"

namespace muo::data {

// Presents slices of tokens as one sequence. A Slice has size() and read(begin, out), and
// owns its memory.
template <class Slice>
class ConcatData final : public TokenData {
 public:
  explicit ConcatData(std::vector<Slice> slices) : slices_(std::move(slices)) {
    begins_.reserve(slices_.size());
    for (const Slice& slice : slices_) {
      begins_.push_back(size_);
      size_ += slice.size();
    }
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    const auto count = static_cast<std::int64_t>(out.size());
    MUO_CHECK(0 <= begin && begin <= size_ - count, "tokens [", begin, ", ", begin + count, ") of ",
              size_);
    auto index = static_cast<std::size_t>(
        std::distance(begins_.begin(), std::upper_bound(begins_.begin(), begins_.end(), begin)));
    for (index = index == 0 ? 0 : index - 1; !out.empty(); ++index) {
      const std::int64_t offset = begin - begins_[index];
      const std::int64_t here =
          std::min(slices_[index].size() - offset, static_cast<std::int64_t>(out.size()));
      slices_[index].read(offset, out.first(static_cast<std::size_t>(here)));
      out = out.subspan(static_cast<std::size_t>(here));
      begin += here;
    }
  }

 private:
  std::vector<Slice> slices_;
  std::vector<std::int64_t> begins_;  // position of each slice's first token
  std::int64_t size_ = 0;
};

}  // namespace muo::data
