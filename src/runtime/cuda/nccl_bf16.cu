#include <algorithm>
#include <cstdint>

#include "runtime/cuda/launch.h"
#include "runtime/cuda/nccl_bf16.h"
#include "runtime/cuda/nccl_handle.h"
#include "runtime/cuda/vector.h"

namespace muo::nccl {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 21;  // elements received from a rank at a time
constexpr int kThreads = 512;
constexpr int kMaxBlocks = 64;  // leaves multiprocessors to the products beside it

// Values of all ranks for the same elements.
struct Values {
  const BF16* own;
  const BF16* others;  // rank r's begin at element r * kChunk
  int rank, world;

  __host__ __device__ const BF16* of(int r) const { return r == rank ? own : others + r * kChunk; }
};

template <int N, class Out>
__device__ __forceinline__ void add_at(const Values& values, std::int64_t i, Out* out) {
  cuda::Pack<N> sum = cuda::load<N>(values.of(0) + i);
  for (int r = 1; r < values.world; ++r) {
    const cuda::Pack<N> x = cuda::load<N>(values.of(r) + i);
#pragma unroll
    for (int k = 0; k < N; ++k)
      sum.v[k] += x.v[k];
  }
  if constexpr (N * sizeof(Out) <= 16) {
    cuda::store<N>(out + i, sum);
  } else {
    constexpr int kHalf = N / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      cuda::Pack<kHalf> part;
#pragma unroll
      for (int k = 0; k < kHalf; ++k)
        part.v[k] = sum.v[half * kHalf + k];
      cuda::store<kHalf>(out + i + half * kHalf, part);
    }
  }
}

// A thread adds N elements at a time; the last count % N one by one.
template <int N, class Out>
__global__ void add_ranks_kernel(Values values, Out* out, std::int64_t count) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t whole = count / N * N;
  for (std::int64_t i = thread * N; i < whole; i += threads * N)
    add_at<N>(values, i, out);
  for (std::int64_t i = whole + thread; i < count; i += threads)
    add_at<1>(values, i, out);
}

template <class Out>
void add_ranks(NativeStream stream, const Values& values, const Tensor& out) {
  constexpr int kVector = cuda::kWidth<BF16>;
  const auto is_aligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
  };
  const bool vectors = is_aligned(values.own) && is_aligned(out.data);
  const std::int64_t work = out.numel() / (vectors ? kVector : 1) + kVector;
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>((work + kThreads - 1) / kThreads, kMaxBlocks));
  cuda::launch(vectors ? add_ranks_kernel<kVector, Out> : add_ranks_kernel<1, Out>, blocks,
               kThreads, 0, stream, values, out.as<Out>(), out.numel());
}

Share owned_by(int rank, int world, const Collective& c) {
  if (c.kind == CollectiveKind::kReduce) return {0, rank == c.root ? c.count : 0};
  return share_of(rank, world, c.count);
}

// Sends to each rank and receives from each, as one group. `peers(r, send, receive)` calls
// send(tensor) or receive(tensor) for rank r.
template <class Peers>
void exchange(const BF16Rank& here, const Stream& stream, const Collective& c, const Peers& peers) {
  const Functions& f = here.library.functions;
  const auto checked = [&](Result result, const char* function) {
    check(here.library, result, function, here.comm, concat(c.text(), " on rank ", here.rank));
  };
  Grouped group(f);
  checked(group.start(), "ncclGroupStart");
  for (int r = 0; r < here.world; ++r) {
    if (r == here.rank) continue;
    peers(
        r,
        [&](const Tensor& x) {
          if (x.numel() > 0)
            checked(f.send(x.data, static_cast<std::size_t>(x.numel()), Type::kBfloat16, r,
                           here.comm, stream.native()),
                    "ncclSend");
        },
        [&](const Tensor& x) {
          if (x.numel() > 0)
            checked(f.receive(x.data, static_cast<std::size_t>(x.numel()), Type::kBfloat16, r,
                              here.comm, stream.native()),
                    "ncclRecv");
        });
  }
  checked(group.end(), "ncclGroupEnd");
}

}  // namespace

std::int64_t bf16_scratch_bytes(int world) { return world * kChunk * size_of(DType::kBF16); }

void add_bf16(const BF16Rank& here, Stream& stream, const Collective& c) {
  const Share own = owned_by(here.rank, here.world, c);
  const bool everywhere = c.kind == CollectiveKind::kAllReduce;
  const Tensor scratch{here.scratch, {here.world * kChunk}, DType::kBF16, c.in.device};
  std::int64_t longest = 0;
  for (int r = 0; r < here.world; ++r)
    longest = std::max(longest, owned_by(r, here.world, c).count);
  for (std::int64_t begin = 0; begin < longest; begin += kChunk) {
    const auto length = [&](const Share& share) {
      return std::clamp<std::int64_t>(share.count - begin, 0, kChunk);
    };
    const auto part = [&](const Share& share) {
      return c.in.elements(std::min(share.first + begin, c.count), length(share));
    };
    exchange(here, stream, c, [&](int r, const auto& send, const auto& receive) {
      send(part(owned_by(r, here.world, c)));
      receive(scratch.elements(r * kChunk, length(own)));
    });
    if (length(own) == 0) continue;
    const Values values{part(own).as<BF16>(), scratch.as<BF16>(), here.rank, here.world};
    const Tensor out = c.out.elements((everywhere ? own.first : 0) + begin, length(own));
    if (out.dtype == DType::kF32)
      add_ranks<float>(stream.native(), values, out);
    else
      add_ranks<BF16>(stream.native(), values, out);
  }
  if (!everywhere) return;
  exchange(here, stream, c, [&](int r, const auto& send, const auto& receive) {
    const Share theirs = owned_by(r, here.world, c);
    send(c.out.elements(own.first, own.count));
    receive(c.out.elements(theirs.first, theirs.count));
  });
}

}  // namespace muo::nccl
