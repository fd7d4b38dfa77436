#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/cuda_check.h"
#ifdef MUO_SIMT
#  include "stand_ins/launches.h"
#endif

// Building blocks of gpu_facts.cu, the only file that includes this one: kernels of one thread that
// wait, and owners of words, streams and graphs.
namespace muo::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::uint32_t;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}
std::string fixed(double value, int digits) {  // not by fmt, as nvcc 13.0 rejects its consteval
  char text[64];
  static_cast<void>(std::snprintf(text, sizeof text, "%.*f", digits, value));
  return text;
}
void sleep_ms(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

// --- Kernels of one thread. `given_up`, in the GPU's memory, counts waits that timed out; once it
// is above 0, no kernel waits any more.

#ifdef MUO_SIMT
void wait_until(const Word* word, Word least, Word* given_up, double ms) {
  const auto begin = Clock::now();
  while (std::atomic_ref(*const_cast<Word*>(word)).load() < least) {
    if (std::atomic_ref(*given_up).load() > 0) return;
    if (ms_since(begin) > ms) {
      ++std::atomic_ref(*given_up);
      return;
    }
    std::this_thread::yield();
  }
}
void wait(cudaStream_t stream, const Word* word, Word* given_up, double ms) {
  stand_in::enqueue(stream, "wait", {}, [=] { wait_until(word, 1, given_up, ms); });
}
void barrier(cudaStream_t stream, Word* word, Word ranks, Word* given_up, double ms) {
  stand_in::enqueue(stream, "barrier", {}, [=] {
    ++std::atomic_ref(*word);
    wait_until(word, ranks, given_up, ms);
  });
}
void mark(cudaStream_t stream, Word* word) {
  stand_in::enqueue(stream, "mark", {}, [=] { std::atomic_ref(*word).store(1); });
}
void nothing(cudaStream_t stream) { stand_in::enqueue(stream, "nothing", {}, {}); }
#else
__device__ unsigned long long now_ns() {
  unsigned long long ns = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}
__device__ Word load(const Word* word) {
  Word value = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ void wait_until(const Word* word, Word least, Word* given_up, double ms) {
  const unsigned long long begin = now_ns();
  while (load(word) < least) {
    if (load(given_up) > 0) return;
    if (static_cast<double>(now_ns() - begin) > 1e6 * ms) {
      atomicAdd(given_up, 1U);
      return;
    }
    __nanosleep(200);
  }
}
__global__ void wait_kernel(const Word* word, Word* given_up, double ms) {
  wait_until(word, 1, given_up, ms);
}
__global__ void barrier_kernel(Word* word, Word ranks, Word* given_up, double ms) {
  atomicAdd(word, 1U);
  wait_until(word, ranks, given_up, ms);
}
__global__ void mark_kernel(Word* word) {
  *static_cast<volatile Word*>(word) = 1;
  __threadfence_system();
}
__global__ void nothing_kernel() {}

void wait(cudaStream_t stream, const Word* word, Word* given_up, double ms) {
  wait_kernel<<<1, 1, 0, stream>>>(word, given_up, ms);
}
void barrier(cudaStream_t stream, Word* word, Word ranks, Word* given_up, double ms) {
  barrier_kernel<<<1, 1, 0, stream>>>(word, ranks, given_up, ms);
}
void mark(cudaStream_t stream, Word* word) { mark_kernel<<<1, 1, 0, stream>>>(word); }
void nothing(cudaStream_t stream) { nothing_kernel<<<1, 1, 0, stream>>>(); }
#endif

// --- The operands of these kernels

class Words {
 public:
  enum class In : std::uint8_t { kPinned, kGpu };
  Words(In where, std::size_t count) : where_(where), bytes_(count * sizeof(Word)) {
    void* data = nullptr;
    MUO_CUDA_CHECK(where == In::kPinned
                       ? cudaHostAlloc(&data, bytes_, cudaHostAllocPortable | cudaHostAllocMapped)
                       : cudaMalloc(&data, bytes_));
    data_ = static_cast<Word*>(data);
  }
  ~Words() { static_cast<void>(where_ == In::kPinned ? cudaFreeHost(data_) : cudaFree(data_)); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  [[nodiscard]] Word* at(std::size_t i) const { return data_ + i; }
  void zero(cudaStream_t stream) const {
    MUO_CUDA_CHECK(cudaMemsetAsync(data_, 0, bytes_, stream));
    MUO_CUDA_CHECK(cudaStreamSynchronize(stream));
  }
  // For pinned words only.
  void set(std::size_t i, Word value) const { std::atomic_ref(data_[i]).store(value); }
  [[nodiscard]] Word get(std::size_t i) const { return std::atomic_ref(data_[i]).load(); }

 private:
  In where_;
  std::size_t bytes_;
  Word* data_ = nullptr;
};

class Streams {
 public:
  explicit Streams(std::size_t count) : all_(count) {
    for (cudaStream_t& stream : all_)
      MUO_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Streams() {
    for (const cudaStream_t stream : all_) {
      static_cast<void>(cudaStreamSynchronize(stream));
      static_cast<void>(cudaStreamDestroy(stream));
    }
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  [[nodiscard]] cudaStream_t operator[](std::size_t i) const { return all_[i]; }
  void synchronize() const {
    for (const cudaStream_t stream : all_)
      MUO_CUDA_CHECK(cudaStreamSynchronize(stream));
  }

 private:
  std::vector<cudaStream_t> all_;
};

// A captured graph, with an event for each edge between streams.
class Replay {
 public:
  Replay(cudaStream_t origin, const std::function<void(Replay&)>& body) : origin_(origin) {
    cudaGraph_t graph = nullptr;
    MUO_CUDA_CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
    try {
      body(*this);
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(origin, &graph));
      throw;
    }
    MUO_CUDA_CHECK(cudaStreamEndCapture(origin, &graph));
    MUO_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph, 0));
    MUO_CUDA_CHECK(cudaGraphDestroy(graph));
    MUO_CUDA_CHECK(cudaGraphUpload(executable_, origin));
    MUO_CUDA_CHECK(cudaStreamSynchronize(origin));
  }
  ~Replay() {
    static_cast<void>(cudaStreamSynchronize(origin_));
    static_cast<void>(cudaGraphExecDestroy(executable_));
    for (const cudaEvent_t event : events_)
      static_cast<void>(cudaEventDestroy(event));
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  // Work that is enqueued on `after` from now on runs after the work on `before`.
  void order(cudaStream_t before, cudaStream_t after) {
    if (before == after) return;
    events_.emplace_back();
    MUO_CUDA_CHECK(cudaEventCreateWithFlags(&events_.back(), cudaEventDisableTiming));
    MUO_CUDA_CHECK(cudaEventRecord(events_.back(), before));
    MUO_CUDA_CHECK(cudaStreamWaitEvent(after, events_.back(), 0));
  }
  void launch() const { MUO_CUDA_CHECK(cudaGraphLaunch(executable_, origin_)); }

 private:
  cudaStream_t origin_;
  cudaGraphExec_t executable_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

}  // namespace
}  // namespace muo::bench
