#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/documents.h"
#include "kernels/operation.h"

namespace muo::cuda {
namespace {

// One warp per row, 32 tokens at a time. The start for a lane is the last document token in its own
// or a lower lane, or else the start carried over from earlier tokens. Reads and writes 4 bytes per
// token; bound by the latency of a row's loads.
__global__ void __launch_bounds__(kRowThreads)
    document_starts_kernel(std::int32_t* __restrict__ starts,
                           const std::int32_t* __restrict__ tokens, std::int64_t rows, int t,
                           std::int32_t document_token) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  tokens += row * t;
  starts += row * t;
  const unsigned up_to_own = kAllLanes >> (31 - lane_id());
  int start = 0;
#pragma unroll 4
  for (int first = 0; first < t; first += 32) {
    const int i = first + lane_id();
    const unsigned begin = __ballot_sync(kAllLanes, i < t && tokens[i] == document_token);
    const auto last_of = [&](unsigned lanes) {
      return lanes == 0 ? start : first + 31 - __clz(static_cast<int>(lanes));
    };
    if (i < t) starts[i] = last_of(begin & up_to_own);
    start = last_of(begin);
  }
}

void document_starts(NativeStream stream, const DocumentStartsArgs& args) {
  const std::int64_t b = args.tokens.shape[0], t = args.tokens.shape[1];
  launch_rows(document_starts_kernel, stream, b, args.starts.as<std::int32_t>(),
              args.tokens.as<std::int32_t>(), b, static_cast<int>(t), args.document_token);
}

const KernelRegistration registration(&document_starts);

}  // namespace
}  // namespace muo::cuda
