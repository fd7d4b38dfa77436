#pragma once

#include <cstdint>
#include <memory>

#include "runtime/stream.h"

namespace muo::cuda {

// What the kernels of one stream share. Work on a stream runs in order, so this scratch is never in
// use twice at once; in a captured graph the order of the stream holds too. Made with the stream,
// before any capture, and freed after it.
struct StreamContext {
  int device = 0;                       // ordinal of CUDA
  double* partials = nullptr;           // (kMostPartials) between two launches of a sum
  std::byte* gemm_workspace = nullptr;  // 256-byte aligned
  std::int64_t gemm_workspace_bytes = 0;
  std::shared_ptr<void> blas = {}, dnn = {};  // library handles, made by the kernels that use them
};

// Enough for sums in which every block of a grid that fills any GPU leaves a few dozen values.
inline constexpr std::int64_t kMostPartials = std::int64_t{1} << 20;

// The context of a stream of this backend; throws Error for any other. The reference holds until
// the stream is destroyed.
StreamContext& context_of(NativeStream stream);

// Multiprocessors of GPU `device` that collectives may hold while other kernels run: the most that
// a communicator of this process has said.
void keep_for_collectives(int device, int multiprocessors);
int kept_for_collectives(int device);

// For the owner of the stream.
void add_stream_context(NativeStream stream, StreamContext context);
void remove_stream_context(NativeStream stream);

}  // namespace muo::cuda
