#pragma once

// Enqueues work on streams of the stand-in: kernels, work of the libraries' stand-ins, planted
// faults.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "cuda_runtime_api.h"

namespace muo::stand_in {

// Runs on a thread of the GPU; if it is captured, at every launch of its graph.
using Task = std::function<void()>;

// The addresses that a piece of work may access.
struct Addresses {
  std::vector<const void*> certain;   // null, or memory that the GPU can access
  std::vector<const void*> possible;  // words that may be addresses

  template <class T>
  void add(const T& value) {
    if constexpr (std::is_pointer_v<T>) {
      certain.push_back(value);
    } else if constexpr (sizeof(T) >= sizeof(void*)) {
      T copy = value;
      __builtin_clear_padding(&copy);  // padding could look like an address
      const auto* bytes = reinterpret_cast<const std::byte*>(&copy);
      for (std::size_t at = 0; at + sizeof(void*) <= sizeof(T); at += sizeof(void*)) {
        const void* word = nullptr;
        std::memcpy(&word, bytes + at, sizeof word);
        possible.push_back(word);
      }
    }
  }
};

// Enqueues work under this name. launch() loads `kernel` first, unless it is loaded.
cudaError_t enqueue(cudaStream_t stream, const char* name, const Addresses& addresses, Task task);
cudaError_t launch(cudaStream_t stream, const void* kernel, const Addresses& addresses, Task task);
// For work that is one operation of several GPUs, which a loop must not contain.
cudaError_t enqueue_collective(cudaStream_t stream, const char* name, const Addresses& addresses,
                               Task task);
cudaError_t refuse_launch(const char* why);
// Marks the stream's GPU as lost, as after an illegal access: every later call on it fails.
void lose_gpu(cudaStream_t stream);

// Dynamic bytes for which the kernel opted in on the current device; 0: none.
std::size_t shared_opt_in(const void* kernel);

// During its lifetime, grids that this thread launches run all of their blocks at once.
class ResidentLaunches {
 public:
  ResidentLaunches();
  ~ResidentLaunches();
  ResidentLaunches(const ResidentLaunches&) = delete;
  ResidentLaunches& operator=(const ResidentLaunches&) = delete;
};
bool launches_are_resident();

// Results of compilation by nvcc and limits of the GPU, set by the library that contains the
// kernels.
struct Compiled {
  cudaFuncAttributes (*attributes_of)(const void* kernel) = nullptr;
  std::size_t shared_limit = 0;  // bytes per block with opt-in
  int major = 9, minor = 0;
};
void set_compiled(const Compiled& compiled);

}  // namespace muo::stand_in
