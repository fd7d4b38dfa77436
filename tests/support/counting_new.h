#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

// Counts the allocations of a test program. Include this in exactly one source of the program: it
// replaces the global operator new.

// NOLINTBEGIN(cppcoreguidelines-no-malloc, misc-definitions-in-headers): that is its purpose

namespace muo::test {

inline std::atomic<std::int64_t> allocations = 0;  // by operator new, on all threads

inline void* counted(std::size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
inline void* counted_or_throw(std::size_t bytes) {
  if (void* memory = counted(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace muo::test

// The whole test program allocates through these functions, including the shared library. They are
// not inlined: otherwise g++ sees free() of memory from a new-expression and warns of a mismatch.
void* operator new(std::size_t bytes) { return muo::test::counted_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return muo::test::counted_or_throw(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return muo::test::counted(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return muo::test::counted(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

// NOLINTEND(cppcoreguidelines-no-malloc, misc-definitions-in-headers)
