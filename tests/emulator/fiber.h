#pragma once

#include <cstddef>

namespace muo::simt {

// A call that can be suspended and resumed, on x86-64. Apart from the stack, all its state is in
// the object, so different OS threads may resume it between runs of the body.
class Fiber {
 public:
  using Body = void (*)(void* argument);
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

  // `body` starts with the first resume() and never returns. The caller owns the stack of
  // kStackBytes; `colour` shifts its top, so that the fibers' most used parts do not all map to the
  // same cache sets.
  Fiber(std::byte* stack, std::size_t colour, Body body, void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();   // runs the fiber, and those to which it switches, until one suspends
  void suspend();  // called by the fiber: returns to resume()
  // Called by the fiber: runs `next`, whose suspend() returns to the resume() of this one.
  void switch_to(Fiber& next);

 private:
  // The caller of resume(), to which suspend() returns.
  struct Owner {
    void* stack_pointer = nullptr;
    const void* stack = nullptr;  // AddressSanitizer; nullptr until the first switch
    std::size_t stack_bytes = 0;
    void* identity = nullptr;  // ThreadSanitizer
  };
  static void start(Fiber* fiber);
  void arrived(void* shadow);

  std::byte* stack_;
  Body body_;
  void* argument_;
  void* stack_pointer_ = nullptr;  // valid while the fiber is suspended
  Owner owner_;
  void* shadow_ = nullptr;    // AddressSanitizer: its shadow stack while it is suspended
  void* identity_ = nullptr;  // ThreadSanitizer
};

// Stacks for `count` fibers, each above a guard page, so that an overflow is a segmentation fault.
// Only pages that were used take memory.
class FiberStacks {
 public:
  explicit FiberStacks(std::size_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  // Call once per index: it makes the guard page on demand, as the OS limits the number of
  // mappings.
  [[nodiscard]] std::byte* stack(std::size_t index);

 private:
  std::size_t bytes_;
  std::byte* memory_;
};

}  // namespace muo::simt
