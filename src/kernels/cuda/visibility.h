#pragma once

#include <cstdint>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"

namespace muo::cuda {

// Which pairs of one batch row are visible: those that the window lets through and, where
// kDocuments, that lie in one document. Queries may be behind the last: they count as it does.
template <class Int, bool kDocuments>
struct Visibility {
  const AttentionGeometry<Int>& g;
  const std::int32_t* starts;  // of the batch row

  __device__ __forceinline__ Visibility(const AttentionGeometry<Int>& geometry, Int row)
      : g(geometry), starts(kDocuments ? geometry.starts + row * geometry.t : nullptr) {}

  __device__ __forceinline__ Int start(Int query) const {
    return __ldg(starts + min(query, g.t - 1));
  }
  __device__ __forceinline__ bool visible(Int query, Int key) const {
    if constexpr (kDocuments) return g.visible(query, key) && key >= start(query);
    return g.visible(query, key);
  }
  // The key, and so all before it, is too far back for the query, and so for all behind it.
  __device__ __forceinline__ bool beyond(Int query, Int key) const {
    if constexpr (kDocuments) return query > key + g.window || start(query) > key;
    return query > key + g.window;
  }
  // The first key that the query sees, and so the first that one from it on does.
  __device__ __forceinline__ Int first_key(Int query) const {
    if constexpr (kDocuments) return max(query - g.window, start(query));
    return max(Int{0}, query - g.window);
  }
  // The last query that sees the key, and so the last that sees one up to it. A key may be behind
  // the last, too. The whole warp calls it, as it searches 32 queries at a time.
  __device__ __forceinline__ Int last_query(Int key) const {
    const Int last = min(g.t - 1, key + g.window);
    if constexpr (!kDocuments) return last;
    Int found = min(key, g.t - 1), end = last + 1;  // it is in [found, end)
    while (end - found > 1) {
      const Int step = (end - found + 30) / 32;
      const Int query = found + step * (lane_id() + 1);
      found += step * __popc(__ballot_sync(kAllLanes, query < end && start(query) <= key));
      end = min(end, found + step);
    }
    return found;
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
