#pragma once

// __syncthreads() and the warp collectives, under CUDA's names.

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "emulator/scheduler.h"

inline void __syncthreads(MUO_SIMT_SITE) { muo::simt::Scheduler::current().barrier(false, site); }
inline int __syncthreads_count(int predicate, MUO_SIMT_SITE) {
  return static_cast<int>(muo::simt::Scheduler::current().barrier(predicate != 0, site));
}
inline int __syncthreads_or(int predicate, MUO_SIMT_SITE) {
  return static_cast<int>(muo::simt::Scheduler::current().barrier(predicate != 0, site) != 0);
}
inline int __syncthreads_and(int predicate, MUO_SIMT_SITE) {
  return static_cast<int>(muo::simt::Scheduler::current().barrier(predicate == 0, site) == 0);
}

namespace muo::simt {

inline int lane() { return static_cast<int>(Scheduler::current().thread().lane); }

template <class Body>
void for_lanes(unsigned mask, const Body& body) {
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1U) != 0) body(i);
}

template <class T>
T get(const std::byte* from) {
  T out;
  std::memcpy(&out, from, sizeof(T));
  return out;
}

// Publishes `value`, waits until all lanes have arrived and `exchange` was carried out, and returns
// this lane's result.
template <class R, class T>
R collective(unsigned mask, const T& value, Exchange exchange, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64 && sizeof(R) <= 64);
  Scheduler& scheduler = Scheduler::current();
  CudaThread& self = scheduler.thread();
  std::memcpy(self.given, &value, sizeof(T));
  scheduler.collective(mask, exchange, site);
  return get<R>(self.taken);
}

// The value of lane `source` of the warp.
template <class T>
T shuffle(unsigned mask, T value, int source, Site site) {
  Scheduler::current().thread().source = source;
  const Exchange exchange = [](CudaThread* warp, unsigned lanes) {
    for_lanes(lanes, [&](int i) {
      if ((lanes >> warp[i].source & 1U) == 0)
        Scheduler::current().fail("a shuffle reads from a lane outside its mask");
      std::memcpy(warp[i].taken, warp[warp[i].source].given, sizeof(T));
    });
  };
  return collective<T>(mask, value, exchange, site);
}

// kFold is a lambda without captures: T(T, T).
template <class T, auto kFold>
T reduce(unsigned mask, T value, Site site) {
  const Exchange exchange = [](CudaThread* warp, unsigned lanes) {
    const int first = __builtin_ctz(lanes);
    T sum = get<T>(warp[first].given);
    for_lanes(lanes & ~(1U << first), [&](int i) { sum = kFold(sum, get<T>(warp[i].given)); });
    for_lanes(lanes, [&](int i) { std::memcpy(warp[i].taken, &sum, sizeof(T)); });
  };
  return collective<T>(mask, value, exchange, site);
}

}  // namespace muo::simt

inline void __syncwarp(unsigned mask = ~0U, MUO_SIMT_SITE) {
  muo::simt::Scheduler::current().collective(
      mask, [](muo::simt::CudaThread*, unsigned) {}, site);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, MUO_SIMT_SITE) {
  const int segment = muo::simt::lane() & ~(width - 1);
  return muo::simt::shuffle(mask, value, segment | (source & (width - 1)), site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, MUO_SIMT_SITE) {
  const int self = muo::simt::lane();
  const int source = self ^ lanes;
  return muo::simt::shuffle(mask, value, source / width > self / width ? self : source, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32, MUO_SIMT_SITE) {
  const int self = muo::simt::lane();
  const int source = self + static_cast<int>(lanes);
  return muo::simt::shuffle(mask, value, source / width != self / width ? self : source, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32, MUO_SIMT_SITE) {
  const int self = muo::simt::lane();
  const int source = self - static_cast<int>(lanes);
  return muo::simt::shuffle(mask, value, source < (self & ~(width - 1)) ? self : source, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, MUO_SIMT_SITE) {
  const muo::simt::Exchange exchange = [](muo::simt::CudaThread* warp, unsigned lanes) {
    unsigned votes = 0;
    muo::simt::for_lanes(lanes, [&](int i) {
      if (muo::simt::get<int>(warp[i].given) != 0) votes |= 1U << i;
    });
    muo::simt::for_lanes(lanes, [&](int i) { std::memcpy(warp[i].taken, &votes, sizeof votes); });
  };
  return muo::simt::collective<unsigned>(mask, predicate, exchange, site);
}
inline int __any_sync(unsigned mask, int predicate, MUO_SIMT_SITE) {
  return static_cast<int>(__ballot_sync(mask, predicate, site) != 0);
}
inline int __all_sync(unsigned mask, int predicate, MUO_SIMT_SITE) {
  return static_cast<int>(__ballot_sync(mask, predicate, site) == mask);
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, MUO_SIMT_SITE) {
  const muo::simt::Exchange exchange = [](muo::simt::CudaThread* warp, unsigned lanes) {
    muo::simt::for_lanes(lanes, [&](int i) {
      unsigned equal = 0;
      muo::simt::for_lanes(lanes, [&](int j) {
        if (std::memcmp(warp[i].given, warp[j].given, sizeof(T)) == 0) equal |= 1U << j;
      });
      std::memcpy(warp[i].taken, &equal, sizeof equal);
    });
  };
  return muo::simt::collective<unsigned>(mask, value, exchange, site);
}

template <class T>
T __reduce_add_sync(unsigned mask, T value, MUO_SIMT_SITE) {
  return muo::simt::reduce<T, [](T a, T b) { return static_cast<T>(a + b); }>(mask, value, site);
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, MUO_SIMT_SITE) {
  return muo::simt::reduce<T, [](T a, T b) { return a < b ? a : b; }>(mask, value, site);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, MUO_SIMT_SITE) {
  return muo::simt::reduce<T, [](T a, T b) { return a < b ? b : a; }>(mask, value, site);
}
