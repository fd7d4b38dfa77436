#pragma once

// How work reaches a stream of the stand-in: kernels, the libraries' stand-ins, planted faults.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "cuda_runtime_api.h"

namespace muo::stand_in {

// Runs on a thread of the GPU; as often as its graph is launched, if it is captured.
using Task = std::function<void()>;

// The addresses that a piece of work may touch.
struct Addresses {
  std::vector<const void*> certain;   // null, or memory that the GPU can reach
  std::vector<const void*> possible;  // words that may be addresses

  template <class T>
  void add(const T& value) {
    if constexpr (std::is_pointer_v<T>) {
      certain.push_back(value);
    } else if constexpr (sizeof(T) >= sizeof(void*)) {
      T copy = value;
      __builtin_clear_padding(&copy);  // which may look like an address
      const auto* bytes = reinterpret_cast<const std::byte*>(&copy);
      for (std::size_t at = 0; at + sizeof(void*) <= sizeof(T); at += sizeof(void*)) {
        const void* word = nullptr;
        std::memcpy(&word, bytes + at, sizeof word);
        possible.push_back(word);
      }
    }
  }
};

// Work under this name; `kernel` is loaded first if it is one.
cudaError_t enqueue(cudaStream_t stream, const char* name, const Addresses& addresses, Task task);
cudaError_t launch(cudaStream_t stream, const void* kernel, const Addresses& addresses, Task task);
cudaError_t refuse_launch(const char* why);
// The stream's GPU is lost, as after an illegal access: every call that it is asked fails.
void lose_gpu(cudaStream_t stream);

// Dynamic bytes that the kernel opted in for on the current device; 0: it did not.
std::size_t shared_opt_in(const void* kernel);

// While it lives, grids that this thread launches run with all of their blocks at once.
class ResidentLaunches {
 public:
  ResidentLaunches();
  ~ResidentLaunches();
  ResidentLaunches(const ResidentLaunches&) = delete;
  ResidentLaunches& operator=(const ResidentLaunches&) = delete;
};
bool launches_are_resident();

// Whoever links the kernels says what nvcc made of them, and of which GPU.
struct Compiled {
  cudaFuncAttributes (*attributes_of)(const void* kernel) = nullptr;
  std::size_t shared_limit = 0;  // bytes of a block with opt-in
  int major = 9, minor = 0;
};
void set_compiled(const Compiled& compiled);

}  // namespace muo::stand_in
