#pragma once

#include <cstdint>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "runtime/cuda/ptx.h"

namespace muo::cuda {

// Which pairs of one batch row are visible: those that the window lets through and, where
// kDocuments, that lie in one document.
template <class Int, bool kDocuments>
struct Visibility {
  const AttentionGeometry<Int>& g;
  const std::int32_t* starts = nullptr;  // of the queries from `origin` on that are asked for
  Int origin = 0;

  static __device__ __forceinline__ Visibility of_row(const AttentionGeometry<Int>& g, Int row) {
    return {g, kDocuments ? g.starts + row * g.t : nullptr};
  }
  __device__ __forceinline__ Int start(Int query) const { return starts[query - origin]; }
  __device__ __forceinline__ bool visible(Int query, Int key) const {
    if constexpr (kDocuments)
      return g.visible(query, key) && key >= start(query);
    else
      return g.visible(query, key);
  }
  // The key, and so every key before it, is too far back for the query, and so for every query
  // behind it. Twice, as a sum of what stays in a loop costs nothing there.
  __device__ __forceinline__ bool key_is_before(Int key, Int query) const {
    if constexpr (kDocuments) {
      auto here = static_cast<int>(query - origin);
      compute_here(here);
      return key < query - g.window || key < starts[here];
    } else {
      return key < query - g.window;
    }
  }
  __device__ __forceinline__ bool query_is_behind(Int query, Int key) const {
    if constexpr (kDocuments)
      return query > key + g.window || start(query) > key;
    else
      return query > key + g.window;
  }
  // The first key that the query sees, and so the first that one from it on does.
  __device__ __forceinline__ Int first_key(Int query) const {
    if constexpr (kDocuments)
      return max(query - g.window, start(query));
    else
      return max(Int{0}, query - g.window);
  }
  // The last query that sees the key, or the row's last key if that is before it; and so the last
  // that sees one up to it. The whole warp calls it, as it searches 32 queries at a time.
  __device__ __forceinline__ Int last_query(Int key) const {
    const Int last = min(g.t - 1, key + g.window);
    if constexpr (kDocuments) {
      Int found = min(key, g.t - 1), end = last + 1;  // it is in [found, end)
      while (end - found > 1) {
        const Int step = (end - found + 30) / 32;
        const Int query = found + step * (lane_id() + 1);
        found += step * __popc(__ballot_sync(kAllLanes, query < end && start(query) <= key));
        end = min(end, found + step);
      }
      return found;
    } else {
      return last;
    }
  }
};

// body.operator()<kDocuments>(): so that attention without documents does not pay for them.
template <class Args, class Body>
void with_documents(const Args& args, const Body& body) {
  if (args.starts)
    body.template operator()<true>();
  else
    body.template operator()<false>();
}

}  // namespace muo::cuda
