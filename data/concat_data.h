#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/token_data.h"

namespace muo {

// Tokens in several pieces of memory, seen as one sequence. A Piece knows its size() and how to
// read(begin, out) within itself; `owner` keeps the memory that they point to.
template <class Piece>
class PieceData final : public TokenData {
 public:
  PieceData(std::vector<Piece> pieces, std::shared_ptr<const void> owner)
      : pieces_(std::move(pieces)), owner_(std::move(owner)) {
    begins_.reserve(pieces_.size());
    for (const Piece& piece : pieces_) {
      begins_.push_back(size_);
      size_ += piece.size();
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
          std::min(pieces_[index].size() - offset, static_cast<std::int64_t>(out.size()));
      pieces_[index].read(offset, out.first(static_cast<std::size_t>(here)));
      out = out.subspan(static_cast<std::size_t>(here));
      begin += here;
    }
  }

 private:
  std::vector<Piece> pieces_;
  std::shared_ptr<const void> owner_;
  std::vector<std::int64_t> begins_;  // of each piece
  std::int64_t size_ = 0;
};

}  // namespace muo
