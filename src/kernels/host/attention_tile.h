#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/host/attention_pack.h"
#include "kernels/host/attention_product.h"
#include "kernels/host/index_check.h"

// Common parts of the two directions of the host attention.
//
// A block of kQueries queries is processed with tiles of kKeys keys, one after another. Scores and
// probabilities of a tile are stored transposed, (keys, queries), with queries along the SIMD
// lanes. Maximum, exponential, sum and mask are then vertical operations, and all matrix products
// of the two directions use the same micro-kernel:
//   S^T  = K Q^T     dP^T = V dO^T     depth: features  lanes: queries
//   O^T += V^T P^T   dQ^T += K^T dS^T  depth: keys      lanes: queries
//   dV  += P^T dO    dK  += dS^T Q     depth: queries   lanes: features
// Every operand is stored as words along the depth of its product. If a word is two bf16 numbers,
// the backward pass stores K and dS twice, because each enters products with two different depths.
namespace muo::host {

inline constexpr float kLog2E = 1.44269504088896340736F;
inline constexpr float kLn2 = 0.693147180559945309417F;
inline constexpr Index kQueries = 64;
inline constexpr Index kQueryVectors = kQueries / kLanes;

inline F32 lane_numbers() {
  alignas(64) static constexpr float kNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
  return load(kNumbers);
}

// Allocates blocks of scratch, starting at a cache line; the size of each is a multiple of kLanes
// elements. A default-constructed Workspace has no memory: it returns null and only counts.
class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(float* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    begin_ = p + (64 - address % 64) % 64 / sizeof(float);
  }
  float* take(Index count) {
    const Index at = std::exchange(taken_, taken_ + round_up(count, kLanes));
    return begin_ == nullptr ? nullptr : begin_ + at;
  }
  // Elements of scratch for all blocks so far, whatever the alignment of the scratch is.
  [[nodiscard]] Index needed() const { return taken_ + kSlack; }

 private:
  static constexpr Index kSlack = 64 / sizeof(float);
  float* begin_ = nullptr;
  Index taken_ = 0;
};

// The queries [first, first + count) of one block and the keys that each of them sees. Ranges of
// keys are extended to begin at whole vectors, so that they consist of whole words; the mask hides
// the keys that are not visible.
struct QueryBlock {
  Index first;
  Index count;

  // `starts`: AttentionArgs::starts, may be absent; `row`: the batch row.
  QueryBlock(Index first_query, Index queries, Index window, const Tensor& starts, Index row)
      : first(first_query), count(queries) {
    for (Index v = 0; v < kQueryVectors; ++v) {
      const Index lane0 = first + v * kLanes;
      begins_[v] = lane0 - round_up(window, kLanes);
      all_see_[v] = lane0 + kLanes - 1 - window;
      store(reaches_ + v * kLanes, simd::broadcast(static_cast<float>(window)));
    }
    if (starts) restrict_to_documents(starts.row(row));
  }

  [[nodiscard]] Index vectors() const { return (count + kLanes - 1) / kLanes; }
  [[nodiscard]] Index keys_begin() const { return std::max<Index>(0, begins_[0]); }
  // Rounded up to an even number of keys, because two keys may share a word; the mask hides the
  // extra key.
  [[nodiscard]] Index keys_end() const { return first + round_up(count, 2); }

  // The range of keys in [begin, end) that any query of the vectors [low, high) may see.
  [[nodiscard]] std::pair<Index, Index> keys_of(Index low, Index high, Index begin,
                                                Index end) const {
    return {std::max(begin, begins_[low]), std::min(end, first + high * kLanes)};
  }

  // Calls body(from, to, vector_begin, vector_end) for each run of keys in [begin, end) that are
  // seen, at least partly, by the same query vectors among [low, high).
  template <class Body>
  void for_runs(Index low, Index high, Index begin, Index end, const Body& body) const {
    const auto [runs_begin, runs_end] = keys_of(low, high, begin, end);
    for (Index from = runs_begin; from < runs_end;) {
      const Index seen_low = std::max(low, (from - first) / kLanes);
      Index seen_high = seen_low + 1;
      while (seen_high < high && begins_[seen_high] <= from)
        ++seen_high;
      Index to = std::min(runs_end, first + (seen_low + 1) * kLanes);
      if (seen_high < high) to = std::min(to, begins_[seen_high]);
      body(from, to, seen_low, seen_high);
      from = to;
    }
  }

  // Calls for_runs for kPanelVectors vectors at a time, which is what the micro-kernel processes.
  template <class Body>
  void for_panel_runs(Index begin, Index end, const Body& body) const {
    for (Index v = 0; v < vectors(); v += kPanelVectors)
      for_runs(v, std::min(v + kPanelVectors, vectors()), begin, end, body);
  }

  // Sets the scores of invisible pairs to -infinity, for vector `v` and the keys [begin, end); row
  // 0 of `scores` is key `origin`.
  void mask(float* scores, Index origin, Index v, Index begin, Index end) const {
    const Index lane0 = first + v * kLanes;
    const F32 reach = load(reaches_ + v * kLanes);
    const F32 hidden = simd::broadcast(-std::numeric_limits<float>::infinity());
    for (Index j = begin; j < end; ++j) {
      if (all_see_[v] <= j && j <= lane0) {  // visible to every lane
        j = lane0;
        continue;
      }
      float* p = scores + (j - origin) * kQueries + v * kLanes;
      const F32 s = load(p);
      const F32 distance = lane_numbers() + simd::broadcast(static_cast<float>(lane0 - j));
      const F32 causal = simd::select_less(distance, simd::broadcast(0.0F), hidden, s);
      store(p, simd::select_less(reach, distance, hidden, causal));
    }
  }

 private:
  // Hides the keys before each query's document.
  void restrict_to_documents(const Tensor& starts) {
    Index start = 0;
    for (Index i = 0; i < count; ++i) {
      const Index query = first + i, v = i / kLanes;
      start = index_at(starts, query, "attention: start", start, query + 1);
      if (i % kLanes == 0) begins_[v] = std::max(begins_[v], start / kLanes * kLanes);
      all_see_[v] = std::max(all_see_[v], start);
      reaches_[i] = std::min(reaches_[i], static_cast<float>(query - start));
    }
  }

  Index begins_[kQueryVectors];   // first key that any query of the vector may see; non-decreasing
  Index all_see_[kQueryVectors];  // all queries of the vector see the keys from here to its first
  float reaches_[kQueries];       // number of keys before itself that each query sees
};

}  // namespace muo::host
