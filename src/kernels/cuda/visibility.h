#pragma once

#include <cstdint>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"

namespace muo::cuda {

// The visible pairs of one batch row: those within the window and, if kDocuments,
// within one document.
template <class Int, bool kDocuments>
struct Visibility {
  const AttentionGeometry<Int>& g;
  const std::int32_t* starts = nullptr;  // document starts of the queries from `origin` on
  Int origin = 0;

  // For batch row `row`; `starts` is (b, t), or null.
  static __device__ __forceinline__ Visibility of_row(const AttentionGeometry<Int>& g,
                                                      const std::int32_t* starts, Int row) {
    return {g, kDocuments ? starts + row * g.t : nullptr};
  }
  __device__ __forceinline__ Int start(Int query) const { return starts[query - origin]; }
  __device__ __forceinline__ bool visible(Int query, Int key) const {
    if constexpr (kDocuments)
      return key <= query && first_key(query) <= key;
    else
      return g.visible(query, key);
  }
  // Whether the key, and hence every key before it, is too far back for the query, and hence for
  // every query after it. There are two forms, so that loops over either keys or queries can
  // hoist their sum.
  __device__ __forceinline__ bool key_is_before(Int key, Int query) const {
    if constexpr (kDocuments)
      return key < first_key(query);
    else
      return key < query - g.window;
  }
  __device__ __forceinline__ bool query_is_behind(Int query, Int key) const {
    if constexpr (kDocuments)
      return first_key(query) > key;
    else
      return query > key + g.window;
  }
  // The first key that the query sees, and hence a lower bound for all queries after it.
  __device__ __forceinline__ Int first_key(Int query) const {
    if constexpr (kDocuments)
      return max(query - g.window, start(query));
    else
      return max(Int{0}, query - g.window);
  }
  // The last query, up to `last`, whose document is that of the key or an earlier one. The whole
  // warp calls it, because it searches 32 queries at a time.
  __device__ __forceinline__ Int last_of_document(Int key, Int last) const {
    Int found = key, end = last + 1;  // the result is in [found, end)
    while (end - found > 1) {
      const Int step = (end - found + 30) / 32;
      const Int query = found + step * (lane_id() + 1);
      found += step * __popc(__ballot_sync(kAllLanes, query < end && start(query) <= key));
      end = min(end, found + step);
    }
    return found;
  }
};

// Calls body.operator()<kDocuments>(), so that attention without documents does not pay for them.
template <class Args, class Body>
void with_documents(const Args& args, const Body& body) {
  if (args.starts)
    body.template operator()<true>();
  else
    body.template operator()<false>();
}

}  // namespace muo::cuda
