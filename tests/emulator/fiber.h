#pragma once

#include <cstddef>

namespace muo::simt {

// A call that can stop in its midst and go on later; on x86-64. All but the stack lies in the
// object, so it may be resumed by one OS thread now and by another after the body came to rest.
class Fiber {
 public:
  using Body = void (*)(void* argument);
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

  // `body` starts with the first resume() and never returns. The stack is the caller's, of
  // kStackBytes; `colour` moves its top a little, so that the fibers' hot ends do not all fall into
  // the same sets of the cache.
  Fiber(std::byte* stack, std::size_t colour, Body body, void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();   // runs the fiber, and those that it hands over to, until one suspends
  void suspend();  // called by the fiber: goes back to resume()
  // Called by the fiber: runs `next`, whose suspend() goes back to where this one's would.
  void hand_over(Fiber& next);

 private:
  // Who called resume(): where suspend() goes back to.
  struct Owner {
    void* stack_pointer = nullptr;
    const void* stack = nullptr;  // AddressSanitizer; nullptr until the first switch tells
    std::size_t stack_bytes = 0;
    void* identity = nullptr;  // ThreadSanitizer
  };
  static void start(Fiber* fiber);
  void arrived(void* shadow);

  std::byte* stack_;
  Body body_;
  void* argument_;
  void* stack_pointer_ = nullptr;  // of the fiber while it is suspended
  Owner owner_;
  void* shadow_ = nullptr;    // AddressSanitizer: its shadow stack while it is suspended
  void* identity_ = nullptr;  // ThreadSanitizer
};

// Stacks for `count` fibers, each above a page that may not be touched: too deep a call is a
// segmentation fault. Memory is used only where a stack was.
class FiberStacks {
 public:
  explicit FiberStacks(std::size_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  // Once for each: guards are made as they are needed, as the kernel limits their number.
  [[nodiscard]] std::byte* stack(std::size_t index);

 private:
  std::size_t bytes_;
  std::byte* memory_;
};

}  // namespace muo::simt
