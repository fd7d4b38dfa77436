#pragma once

// Emulations of the instructions in runtime/cuda/ptx.h, which documents each. The layouts of
// fragments follow our reading of the PTX manual, which only a GPU can confirm.

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "emulator/scheduler.h"
#include "emulator/warp.h"

namespace muo::simt {

// One of the two bf16 in a word, widened; the first is in the lower half.
inline float half_of(std::uint32_t word, int half) {
  return to_f32(BF16{static_cast<std::uint16_t>(word >> 16 * half)});
}

inline void carry_out(const PendingCopy& copy) {
  if (copy.to == nullptr) return;
  if (copy.from != nullptr)
    std::memcpy(copy.to, copy.from, copy.bytes);
  else
    std::memset(copy.to, 0, copy.bytes);
}

// The bytes arrive as late as the wait allows; in random schedules sometimes at once.
inline void copy_async(const std::byte* to, const void* from, std::size_t bytes, bool read) {
  Scheduler& scheduler = Scheduler::current();
  const auto misaligned = [bytes](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % bytes != 0;
  };
  if (misaligned(to) || misaligned(from)) scheduler.fail("an asynchronous copy is misaligned");
  const PendingCopy copy{const_cast<std::byte*>(to), read ? from : nullptr, bytes};
  if (scheduler.order() == Order::kRandom && scheduler.random() >> 63 != 0)
    carry_out(copy);
  else
    scheduler.thread().copies.push_back(copy);
}

template <bool kTransposed>
void load_matrices(std::uint32_t (&r)[4], const std::byte* row, Site site) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    Scheduler::current().fail("a row of a matrix is misaligned");
  const Exchange exchange = [](CudaThread* warp, unsigned lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t x[8][8];
      for (int i = 0; i < 8; ++i)
        std::memcpy(x[i], get<const std::byte*>(warp[8 * matrix + i].given), 16);
      for_lanes(lanes, [&](int i) {
        const int g = i / 4;
        const int p = i % 4 * 2;
        const std::uint16_t pair[2] = {kTransposed ? x[p][g] : x[g][p],
                                       kTransposed ? x[p + 1][g] : x[g][p + 1]};
        std::memcpy(warp[i].taken + 4 * matrix, pair, 4);
      });
    }
  };
  struct Words {
    std::uint32_t word[4];
  };
  const auto words = collective<Words>(~0U, row, exchange, site);
  std::memcpy(r, words.word, sizeof r);
}

}  // namespace muo::simt

namespace muo::cuda {

using SharedAddress = const std::byte*;

inline SharedAddress shared_address(const void* p) { return static_cast<const std::byte*>(p); }

inline void copy_async_16(SharedAddress to, const void* from, bool read) {
  simt::copy_async(to, from, 16, read);
}
inline void copy_async_4(SharedAddress to, const void* from, bool read) {
  simt::copy_async(to, from, 4, read);
}
inline void copy_async_commit() { simt::Scheduler::current().thread().copies.push_back({}); }

template <int kGroups>
void copy_async_wait() {
  std::vector<simt::PendingCopy>& queue = simt::Scheduler::current().thread().copies;
  int groups = 0;
  for (const simt::PendingCopy& copy : queue)
    groups += copy.to == nullptr ? 1 : 0;
  std::size_t done = 0;
  for (; groups > kGroups; ++done) {
    simt::carry_out(queue[done]);
    groups -= queue[done].to == nullptr ? 1 : 0;
  }
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(done));
}

inline void load_matrices(std::uint32_t (&r)[4], SharedAddress row, MUO_SIMT_SITE) {
  simt::load_matrices<false>(r, row, site);
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], SharedAddress row, MUO_SIMT_SITE) {
  simt::load_matrices<true>(r, row, site);
}

inline void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1, MUO_SIMT_SITE) {
  struct Fragments {
    std::uint32_t a[4], b[2];
    float d[4];
  };
  struct Result {
    float d[4];
  };
  const simt::Exchange exchange = [](simt::CudaThread* warp, unsigned lanes) {
    float left[16][16];
    float right[8][16];  // transposed
    simt::for_lanes(lanes, [&](int i) {
      const int g = i / 4;
      const int p = i % 4 * 2;
      const auto x = simt::get<Fragments>(warp[i].given);
      for (int n = 0; n < 4; ++n)
        for (int half = 0; half < 2; ++half)
          left[g + n % 2 * 8][p + half + n / 2 * 8] = simt::half_of(x.a[n], half);
      for (int n = 0; n < 2; ++n)
        for (int half = 0; half < 2; ++half)
          right[g][p + half + n * 8] = simt::half_of(x.b[n], half);
    });
    simt::for_lanes(lanes, [&](int i) {
      auto x = simt::get<Fragments>(warp[i].given);
      for (int n = 0; n < 4; ++n)
        for (int k = 0; k < 16; ++k)
          x.d[n] += left[i / 4 + n / 2 * 8][k] * right[i % 4 * 2 + n % 2][k];
      std::memcpy(warp[i].taken, x.d, sizeof x.d);
    });
  };
  const Fragments own{{a[0], a[1], a[2], a[3]}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
  const auto result = simt::collective<Result>(~0U, own, exchange, site);
  std::memcpy(d, result.d, sizeof d);
}

inline void compute_here(int& /*x*/) {}

inline float exp2_approximate(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126F ? 0.0F : y;
}

inline float reciprocal_approximate(float x) {
  const float y = 1.0F / x;
  return std::abs(y) < 0x1p-126F ? 0.0F : y;
}

// The ranks are OS threads, so these are operations of the C++ memory model, which ThreadSanitizer
// understands.
template <class T>
T load_acquire_system(const T* p) {
  return std::atomic_ref<T>(*const_cast<T*>(p)).load(std::memory_order_acquire);
}
template <class T>
void store_release_system(T* p, std::type_identity_t<T> x) {
  std::atomic_ref<T>(*p).store(x, std::memory_order_release);
}

inline std::uint64_t global_timer_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace muo::cuda
