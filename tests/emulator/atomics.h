#pragma once

// Atomic operations under CUDA's names. They are relaxed, as CUDA's are: they order nothing else,
// also for ThreadSanitizer.

#include <atomic>
#include <type_traits>

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> x) {
  return std::atomic_ref<T>(*p).fetch_add(x, std::memory_order_relaxed);
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> x) {
  return std::atomic_ref<T>(*p).exchange(x, std::memory_order_relaxed);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> x) {
  std::atomic_ref<T>(*p).compare_exchange_strong(expected, x, std::memory_order_relaxed);
  return expected;  // the old value in either case
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> x) {
  return std::atomic_ref<T>(*p).fetch_or(x, std::memory_order_relaxed);
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> x) {
  return std::atomic_ref<T>(*p).fetch_and(x, std::memory_order_relaxed);
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> x) {
  const std::atomic_ref<T> all(*p);
  T old = all.load(std::memory_order_relaxed);
  while (old < x && !all.compare_exchange_weak(old, x, std::memory_order_relaxed)) {
  }
  return old;
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> x) {
  const std::atomic_ref<T> all(*p);
  T old = all.load(std::memory_order_relaxed);
  while (x < old && !all.compare_exchange_weak(old, x, std::memory_order_relaxed)) {
  }
  return old;
}

// A fiber sees its own writes and those of other fibers of its OS thread in order anyway. Other OS
// threads may rely on acquire and release operations only, as ThreadSanitizer ignores fences.
inline void __threadfence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
