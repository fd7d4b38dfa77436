#pragma once

#include <cstdint>
#include <memory>

#include "runtime/stream.h"

namespace muo::cuda {

// Resources shared by the kernels of one stream. Work on a stream runs in order, also in a captured
// graph, so this scratch memory is never in use twice at once. Made with the stream, before any
// capture, and freed after it.
struct StreamContext {
  int device = 0;                       // CUDA ordinal
  double* partials = nullptr;           // (kMaxPartials) passed between the two launches of a sum
  std::byte* gemm_workspace = nullptr;  // 256-byte aligned
  std::int64_t gemm_workspace_bytes = 0;
  std::shared_ptr<void> blas = {}, dnn = {};  // library handles, made by the kernels that use them
};

// Enough for sums in which every block of a grid that fills any GPU writes a few dozen values.
inline constexpr std::int64_t kMaxPartials = std::int64_t{1} << 20;

// Context of a stream of this backend; throws Error for any other. The reference is valid until the
// stream is destroyed.
StreamContext& context_of(NativeStream stream);

// Multiprocessors of GPU `device` to reserve for collectives that run beside other kernels: the
// maximum of all calls in this process.
void reserve_for_collectives(int device, int multiprocessors);
int reserved_for_collectives(int device);

// Called by the owner of the stream.
void add_stream_context(NativeStream stream, StreamContext context);
void remove_stream_context(NativeStream stream);

}  // namespace muo::cuda
