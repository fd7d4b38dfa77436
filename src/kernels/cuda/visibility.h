#pragma once

#include <cstdint>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"

namespace muo::cuda {

// Which pairs of one batch row are visible: those that the window lets through and, where
// kDocuments, that lie in one document.
template <class Int, bool kDocuments>
struct Visibility {
  const AttentionGeometry<Int>& g;
  const std::int32_t* starts = nullptr;  // of the queries from `origin` on that are asked for
  Int origin = 0;

  // `starts` (b, t), or null.
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
  // The key, and so every key before it, is too far back for the query, and so for every query
  // behind it. Twice, as a sum of what stays in a loop costs nothing there.
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
  // The first key that the query sees, and so the first that one from it on does.
  __device__ __forceinline__ Int first_key(Int query) const {
    if constexpr (kDocuments)
      return max(query - g.window, start(query));
    else
      return max(Int{0}, query - g.window);
  }
  // The last query up to `last` of the document that the key lies in, or of one before it. The
  // whole warp calls it, as it searches 32 queries at a time.
  __device__ __forceinline__ Int last_of_document(Int key, Int last) const {
    Int found = key, end = last + 1;  // it is in [found, end)
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
