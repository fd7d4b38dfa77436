#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/peer_kernels.h"
#include "runtime/cuda/ptx.h"
#include "runtime/cuda/vector.h"

namespace muo::peer {
namespace {

using cuda::kWidth;
using cuda::Pack;

// Dtypes of a sum, its inputs and its output. Moves stands for collectives without a sum.
template <class Sum_, class In_, class Out_>
struct Types {
  using Sum = Sum_;
  using In = In_;
  using Out = Out_;
  static constexpr bool kVectors = std::is_same_v<Sum, float>;
};
struct Moves {};

template <class Sum, class In>
__device__ __forceinline__ Sum widen(In x) {
  if constexpr (std::is_same_v<Sum, float>)
    return cuda::to_float(x);
  else
    return static_cast<Sum>(x);
}
template <class Out, class Sum>
__device__ __forceinline__ Out narrow(Sum x) {
  if constexpr (std::is_same_v<Sum, float>)
    return cuda::from_float<Out>(x);
  else
    return static_cast<Out>(x);
}

// Stores N elements to a 16-byte aligned address.
template <int N, class Out>
__device__ __forceinline__ void store_all(Out* to, const Pack<N>& x) {
  if constexpr (N == kWidth<Out>) {
    cuda::store<N>(to, x);
  } else {
    static_assert(N == 2 * kWidth<Out>);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Pack<N / 2> part;
#pragma unroll
      for (int i = 0; i < N / 2; ++i)
        part.v[i] = x.v[half * (N / 2) + i];
      cuda::store<N / 2>(to + half * (N / 2), part);
    }
  }
}

__device__ __forceinline__ std::uint64_t address(const void* p) {
  return reinterpret_cast<std::uint64_t>(p);
}

// Sums elements [begin, end), one at a time.
template <class T>
__device__ __forceinline__ void add_elements(const Work& work, std::int64_t begin,
                                             std::int64_t end) {
  auto* out = reinterpret_cast<typename T::Out*>(work.sum_out);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    auto sum = widen<typename T::Sum>(reinterpret_cast<const typename T::In*>(work.sum_in[0])[i]);
    for (int p = 1; p < work.world; ++p)
      sum += widen<typename T::Sum>(reinterpret_cast<const typename T::In*>(work.sum_in[p])[i]);
    out[i] = narrow<typename T::Out>(sum);
  }
}

// Number of elements from `begin` before the first one at which all 16-byte accesses are aligned;
// -1 if there is none.
template <class T>
__device__ __forceinline__ std::int64_t elements_before_vectors(const Work& work,
                                                                std::int64_t begin) {
  constexpr auto kIn = static_cast<std::int64_t>(sizeof(typename T::In));
  constexpr auto kOut = static_cast<std::int64_t>(sizeof(typename T::Out));
  const std::uint64_t first = address(work.sum_in[0] + begin * kIn);
  if (first % kIn != 0) return -1;
  const auto before = static_cast<std::int64_t>((16 - first % 16) % 16) / kIn;
  bool fit = address(work.sum_out + (begin + before) * kOut) % 16 == 0;
  for (int p = 1; p < work.world; ++p)
    fit = fit && address(work.sum_in[p] + (begin + before) * kIn) % 16 == 0;
  return fit ? before : -1;
}

template <class T>
__device__ __forceinline__ void add_vectors(const Work& work, std::int64_t begin,
                                            std::int64_t end) {
  using In = typename T::In;
  constexpr int kN = kWidth<In>;
  auto* out = reinterpret_cast<typename T::Out*>(work.sum_out);
  for (std::int64_t i = begin + std::int64_t{threadIdx.x} * kN; i < end;
       i += std::int64_t{blockDim.x} * kN) {
    Pack<kN> sum = cuda::load<kN>(reinterpret_cast<const In*>(work.sum_in[0]) + i);
#pragma unroll 4
    for (int p = 1; p < work.world; ++p) {
      const Pack<kN> next = cuda::load<kN>(reinterpret_cast<const In*>(work.sum_in[p]) + i);
#pragma unroll
      for (int k = 0; k < kN; ++k)
        sum.v[k] += next.v[k];
    }
    store_all<kN>(out + i, sum);
  }
}

template <class T>
__device__ __forceinline__ void add(const Work& work, Slice slice) {
  std::int64_t begin = slice.begin;
  if constexpr (T::kVectors) {
    const std::int64_t before = elements_before_vectors<T>(work, begin);
    if (before >= 0 && begin + before < slice.end) {
      add_elements<T>(work, begin, begin + before);
      begin += before;
      const std::int64_t vectors = (slice.end - begin) / kWidth<typename T::In>;
      const std::int64_t end = begin + vectors * kWidth<typename T::In>;
      add_vectors<T>(work, begin, end);
      begin = end;
    }
  }
  add_elements<T>(work, begin, slice.end);
}

// Both addresses are equal modulo sizeof(Unit). Each thread has several loads in flight, as a
// peer's memory has a high latency.
template <class Unit>
__device__ __forceinline__ void copy_units(std::byte* to, const std::byte* from,
                                           std::int64_t bytes) {
  constexpr auto kUnit = static_cast<std::int64_t>(sizeof(Unit));
  constexpr int kAtOnce = 4;
  const std::int64_t threads = blockDim.x;
  std::int64_t before = static_cast<std::int64_t>((kUnit - address(to) % kUnit) % kUnit);
  if (before > bytes) before = bytes;
  const std::int64_t units = (bytes - before) / kUnit;
  const std::int64_t after = before + units * kUnit;
  if (kUnit > 1) {
    for (std::int64_t i = threadIdx.x; i < before; i += threads)
      to[i] = from[i];
    for (std::int64_t i = after + threadIdx.x; i < bytes; i += threads)
      to[i] = from[i];
  }
  auto* target = reinterpret_cast<Unit*>(to + before);
  const auto* source = reinterpret_cast<const Unit*>(from + before);
  std::int64_t i = threadIdx.x;
  for (; i + (kAtOnce - 1) * threads < units; i += kAtOnce * threads) {
    Unit x[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      x[k] = source[i + k * threads];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      target[i + k * threads] = x[k];
  }
  for (; i < units; i += threads)
    target[i] = source[i];
}

__device__ __forceinline__ void copy_bytes(std::byte* to, const std::byte* from,
                                           std::int64_t bytes) {
  const std::uint64_t difference = address(to) ^ address(from);
  if (difference % 16 == 0)
    copy_units<uint4>(to, from, bytes);
  else if (difference % 4 == 0)
    copy_units<std::uint32_t>(to, from, bytes);
  else if (difference % 2 == 0)
    copy_units<std::uint16_t>(to, from, bytes);
  else
    copy_units<std::uint8_t>(to, from, bytes);
}

// The protocol's view of this CTA. Lane p of the first warp signals to peer p and waits for it.
template <class T>
class Cta {
 public:
  __device__ __forceinline__ explicit Cta(const Work& work)
      : work_(work), mine_(*work.mailbox[work.rank]), control_(*work.control) {}

  __device__ __forceinline__ Epoch epoch() const { return mine_.epoch[blockIdx.x]; }

  __device__ __forceinline__ bool start() {
    bool ready = true;
    if (threadIdx.x == 0) {
      ready = cuda::load_acquire_system(&mine_.failed) == 0;
      if (ready && atomicExch(&mine_.busy[blockIdx.x], 1U) != 0) {
        fail(Reason::kTwoAtOnce, work_.rank);
        ready = false;
      }
    }
    return together(ready);
  }

  __device__ __forceinline__ void sync() { __syncthreads(); }

  __device__ __forceinline__ void signal(Epoch epoch) {
    if (has_peer())
      cuda::store_release_system(&work_.mailbox[threadIdx.x]->arrived[blockIdx.x][work_.rank],
                                 epoch);
  }

  __device__ __forceinline__ bool wait(Epoch epoch) {
    return together(!has_peer() || peer_came(epoch));
  }

  __device__ __forceinline__ void sum() {
    if constexpr (!std::is_same_v<T, Moves>)
      add<T>(work_, slice_of(work_.sum_count, static_cast<int>(blockIdx.x), work_.ctas));
  }
  __device__ __forceinline__ bool has_middle() const { return work_.middle; }
  __device__ __forceinline__ void copy() {
    for (int i = 0; i < work_.copies; ++i) {
      const Copy& one = work_.copy[i];
      const Slice slice = slice_of(one.count, static_cast<int>(blockIdx.x), work_.ctas);
      const std::int64_t first = slice.begin * work_.element_bytes;
      copy_bytes(one.to + first, one.from + first, slice.end * work_.element_bytes - first);
    }
  }

  __device__ __forceinline__ void finish(Epoch epoch) {
    if (threadIdx.x != 0) return;
    mine_.epoch[blockIdx.x] = epoch;
    if (blockIdx.x == 0) {
      mine_.sent += static_cast<std::uint64_t>(work_.wire_bytes);
      cuda::store_release_system(&control_.sent, mine_.sent);
    }
    atomicExch(&mine_.busy[blockIdx.x], 0U);
  }

 private:
  __device__ __forceinline__ bool has_peer() const {
    const int p = static_cast<int>(threadIdx.x);
    return p < work_.world && p != work_.rank;
  }

  // True if `good` is true in all threads. Otherwise signals to the peers that this CTA has left.
  __device__ __forceinline__ bool together(bool good) {
    if (__syncthreads_or(good ? 0 : 1) == 0) return true;
    signal(kLeft);
    return false;
  }

  __device__ __forceinline__ bool peer_came(Epoch epoch) {
    constexpr unsigned kSpinsBetweenPolls = 64;
    const auto peer = static_cast<int>(threadIdx.x);
    const Epoch* arrived = &mine_.arrived[blockIdx.x][peer];
    const std::uint64_t start = cuda::global_timer_ns();
    for (unsigned spins = 1;; ++spins) {
      const Epoch seen = cuda::load_acquire_system(arrived);
      if (seen == kLeft) return fail(Reason::kPeerLeft, peer);
      if (seen >= epoch) return true;
      if (spins % kSpinsBetweenPolls == 0) {
        if (cuda::load_acquire_system(&control_.abort) != 0) return fail(Reason::kAborted, peer);
        if (cuda::load_acquire_system(&mine_.failed) != 0) return false;
        if (work_.deadline_ns != 0 && cuda::global_timer_ns() - start > work_.deadline_ns)
          return fail(Reason::kDeadline, peer);
      }
      cuda::spin_pause();
    }
  }

  // Only the first failure sets the reason.
  __device__ __forceinline__ bool fail(Reason reason, int peer) {
    if (atomicCAS(&mine_.failed, 0U, 1U) != 0) return false;
    control_.kind = work_.kind;
    control_.tag = work_.tag;
    control_.peer = peer;
    cuda::store_release_system(&control_.reason, static_cast<std::uint32_t>(reason));
    return false;
  }

  const Work& work_;
  Mailbox& mine_;
  Control& control_;
};

// A CTA processes a slice of every vector, each thread 16 bytes at a time: for a sum over R ranks R
// loads and one store, for a copy a load and a store. Bound by the link's bandwidth, or by latency
// in small collectives: three one-way messages for all_reduce, two for the others.
template <class T>
__global__ void __launch_bounds__(kMaxThreads, 2)
    peer_collective(const __grid_constant__ Work work) {
  Cta<T> cta(work);
  take_part(cta);
}

using Kernel = void (*)(Work);

Kernel kernel_of(DType in, DType out) {
  if (in == DType::kF32 && out == DType::kF32) return peer_collective<Types<float, float, float>>;
  if (in == DType::kBF16 && out == DType::kBF16) return peer_collective<Types<float, BF16, BF16>>;
  if (in == DType::kBF16 && out == DType::kF32) return peer_collective<Types<float, BF16, float>>;
  if (in == DType::kF64 && out == DType::kF64)
    return peer_collective<Types<double, double, double>>;
  if (in == DType::kI32 && out == DType::kI32)
    return peer_collective<Types<std::uint32_t, std::uint32_t, std::uint32_t>>;
  if (in == DType::kI64 && out == DType::kI64)
    return peer_collective<Types<std::uint64_t, std::uint64_t, std::uint64_t>>;
  MUO_FAIL("no sum of ", name_of(in), " into ", name_of(out));
}

}  // namespace

void launch_collective(NativeStream stream, const Work& work) {
  // sum_out is null on all ranks or on none, even if a rank's share is empty.
  const Kernel kernel =
      work.sum_out == nullptr ? peer_collective<Moves> : kernel_of(work.dtype, work.out_dtype);
  cuda::launch_resident(kernel, static_cast<unsigned>(work.ctas),
                        static_cast<unsigned>(work.threads), 0, stream, work);
}

std::vector<const void*> kernels() {
  std::vector<const void*> out = {reinterpret_cast<const void*>(&peer_collective<Moves>)};
  for (const auto& [in, sum] : {std::pair{DType::kF32, DType::kF32},
                                {DType::kBF16, DType::kBF16},
                                {DType::kBF16, DType::kF32},
                                {DType::kF64, DType::kF64},
                                {DType::kI32, DType::kI32},
                                {DType::kI64, DType::kI64}})
    out.push_back(reinterpret_cast<const void*>(kernel_of(in, sum)));
  return out;
}

}  // namespace muo::peer
