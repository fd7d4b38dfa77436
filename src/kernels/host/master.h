#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/split_float.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/update_squares.h"
#include "runtime/tensor.h"

// Access to master weights, which are either fp32, or split between a uint16 weight and the replica
// (base/split_float.h) and joined to fp32 one block at a time.
namespace muo::host {

inline constexpr std::int64_t kMasterBlock = 512;
using MasterBlock = std::array<float, kMasterBlock>;

// Calls body(values, begin, count) for blocks of at most kMasterBlock elements [begin, begin +
// count) of [from, to). `values` are the fp32 masters of the block; body writes them, and reads
// them if kReads. Updates the replica afterwards.
template <bool kReads, class Body>
void with_master(const Tensor& weight, const Tensor& replica, std::int64_t from, std::int64_t to,
                 const Body& body) {
  const bool split = weight.dtype == DType::kU16;
  alignas(64) MasterBlock values;
  for (std::int64_t begin = from; begin < to; begin += kMasterBlock) {
    const std::int64_t n = std::min(kMasterBlock, to - begin);
    if (!split) {
      float* const w = weight.as<float>() + begin;
      body(w, begin, n);
      if (replica) simd::copy(replica.as<BF16>() + begin, w, n);
      continue;
    }
    std::uint16_t* __restrict lower = weight.as<std::uint16_t>() + begin;
    BF16* __restrict upper = replica.as<BF16>() + begin;
    const auto count = static_cast<std::size_t>(n);
    if constexpr (kReads)
      for (std::size_t i = 0; i < count; ++i)
        values[i] = join_float(upper[i], lower[i]);
    body(values.data(), begin, n);
    for (std::size_t i = 0; i < count; ++i) {
      const SplitFloat parts = split_float(values[i]);
      upper[i] = parts.upper;
      lower[i] = parts.lower;
    }
  }
}

// Sums the squares of a commit (kernels/update_squares.h), one part at a time.
class PartSquares {
 public:
  void add(const float* before, const float* after, const float* u, std::int64_t n) {
    simd::for_lanes(n, [&](std::int64_t i, auto lanes) {
      const simd::F32 now = simd::load(after + i, lanes);
      const simd::F64 weight = simd::widen(now);
      const simd::F64 change = simd::widen(now - simd::load(before + i, lanes));
      change_ = simd::fma(change, change, change_);
      weight_ = simd::fma(weight, weight, weight_);
      if (u == nullptr) return;
      const simd::F64 update = simd::widen(simd::load(u + i, lanes));
      u_ = simd::fma(update, update, u_);
    });
  }
  [[nodiscard]] UpdateSquares take() {
    const UpdateSquares out{simd::sum(change_), simd::sum(weight_), simd::sum(u_)};
    *this = {};
    return out;
  }

 private:
  simd::F64 change_ = simd::zero_f64(), weight_ = simd::zero_f64(), u_ = simd::zero_f64();
};

// The squares of a commit that writes nothing.
inline void zero_squares(const Tensor& squares) {
  if (squares) std::fill_n(squares.as<double>(), squares.numel(), 0.0);
}

// Calls body(values, begin, count) as with_master does, for all elements, and fills `squares`
// (MuonCommitArgs::squares). `u` is MuonCommitArgs::u or null.
template <class Body>
void commit_master(const Tensor& weight, const Tensor& replica, const float* u,
                   const Tensor& squares, const Body& body) {
  const std::int64_t n = weight.numel();
  if (!squares) return with_master<true>(weight, replica, 0, n, body);
  auto* out = reinterpret_cast<UpdateSquares*>(squares.as<double>());
  alignas(64) MasterBlock before;
  PartSquares sums;
  const std::int64_t piece = n / squares.shape[0];
  for (std::int64_t begin = 0; begin < n; begin += piece)
    for (std::int64_t from = begin; from < begin + piece; from += kCommitPart) {
      const std::int64_t to = std::min(begin + piece, from + kCommitPart);
      with_master<true>(weight, replica, from, to,
                        [&](float* w, std::int64_t at, std::int64_t count) {
                          std::copy_n(w, count, before.data());
                          body(w, at, count);
                          sums.add(before.data(), w, u == nullptr ? u : u + at, count);
                        });
      *out++ = sums.take();
    }
}

}  // namespace muo::host
