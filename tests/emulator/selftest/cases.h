#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

#include "emulator/launch.h"

namespace muo::selftest {

// A small kernel in two versions: correct, and with a planted bug. Each runs in a separate process
// (main.cpp), under schedules and sanitizers that must detect the bug and must accept the correct
// version (../selftest_test.cpp).
struct Case {
  const char* name;
  bool (*run)(bool planted);  // returns true if the results are right
};

std::vector<Case> barrier_cases();
std::vector<Case> memory_cases();
std::vector<Case> pipeline_cases();
std::vector<Case> async_cases();
std::vector<Case> rank_cases();
std::vector<Case> launch_cases();
// Cases without a bug: features on which kernels may rely.
std::vector<Case> control_cases();

// Runs a launch immediately.
template <class... Parameters, class... Arguments>
void launch(bool resident, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t shared_bytes, Arguments&&... arguments) {
  const simt::Call<Parameters...> call(kernel, std::forward<Arguments>(arguments)...);
  const std::size_t opt_in =
      simt::shared_opt_in(reinterpret_cast<const void*>(kernel), shared_bytes);
  call.run(call.checked(grid, block, shared_bytes, opt_in, resident));
}
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Arguments&&... arguments) {
  launch(false, kernel, grid, block, shared_bytes, std::forward<Arguments>(arguments)...);
}

// Memory of exact size, aligned for 16-byte accesses.
template <class T>
class Array {
 public:
  explicit Array(std::size_t size) : size_(size), data_(new (std::align_val_t{16}) T[size]{}) {}
  ~Array() { ::operator delete[](data_, std::align_val_t{16}); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] T* begin() const { return data_; }
  [[nodiscard]] T* end() const { return data_ + size_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  std::size_t size_;
  T* data_;
};

// Resources that resources.cpp reports for kernels with these words in their names.
inline constexpr unsigned kManyRegisters = 121;  // allocated as 128
inline constexpr std::size_t kSharedInKernel = 1024;

// Most cases sum up this many values: kernel(out, x) should write the sum to out[0] and twice the
// sum to out[1].
inline constexpr unsigned kValues = 128;

inline bool sums(void (*kernel)(float* out, const float* x), dim3 grid = 1, dim3 block = kValues,
                 std::size_t shared_bytes = 0) {
  const Array<float> x(kValues);
  const Array<float> out(2);
  float sum = 0.0F;  // of small integers: exact in any order
  for (unsigned i = 0; i < kValues; ++i)
    sum += x[i] = static_cast<float>(1 + i % 7);
  launch(kernel, grid, block, shared_bytes, out.data(), x.data());
  return out[0] == sum && out[1] == 2 * sum;
}

__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2)
    x += __shfl_xor_sync(~0U, x, step);
  return x;
}

template <bool kAfterWriting = true, bool kBeforeReuse = true>
__device__ float block_sum(float x) {
  __shared__ float parts[32];
  const unsigned lane = threadIdx.x % 32;
  x = warp_sum(x);
  if (lane == 0) parts[threadIdx.x / 32] = x;
  if constexpr (kAfterWriting) __syncthreads();
  x = warp_sum(lane < blockDim.x / 32 ? parts[lane] : 0.0F);
  if constexpr (kBeforeReuse) __syncthreads();
  return x;
}

// Thread 0 writes.
__device__ inline void write_sums(float* out, float sum) {
  if (threadIdx.x != 0) return;
  out[0] = sum;
  out[1] = 2 * sum;
}

}  // namespace muo::selftest
