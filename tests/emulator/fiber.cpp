#include "emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/check.h"
#include "emulator/sanitizers.h"

#ifdef __SANITIZE_ADDRESS__
#  include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#  error "the SIMT tier switches stacks in x86-64 assembly"
#endif

// Pushes the callee-saved registers, changes the stack and pops the other side's registers: 7 ns,
// while swapcontext() takes 220 because of its system call. A new fiber's stack is laid out such
// that the first switch to it pops start() and its argument and returns to muo_simt_begin.
extern "C" {
void muo_simt_switch(void** save, void* to);
void muo_simt_begin();
}
asm(R"(
.text
.globl muo_simt_switch
.hidden muo_simt_switch
.type muo_simt_switch, @function
muo_simt_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size muo_simt_switch, .-muo_simt_switch
.globl muo_simt_begin
.hidden muo_simt_begin
.type muo_simt_begin, @function
muo_simt_begin:
  .cfi_startproc
  .cfi_undefined rip
  mov %r14, %rdi
  call *%r15
  ud2
  .cfi_endproc
.size muo_simt_begin, .-muo_simt_begin
)");

namespace muo::simt {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;

}  // namespace

Fiber::Fiber(std::byte* stack, std::size_t colour, Body body, void* argument)
    : stack_(stack), body_(body), argument_(argument) {
  void** top = reinterpret_cast<void**>(stack + kStackBytes - kLine * (colour % 61));
  *--top = nullptr;  // keeps the stack aligned to 16 at the start of muo_simt_begin
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&muo_simt_begin);
  for (int i = 0; i < 4; ++i)  // rbp (ends backtraces), rbx, r12, r13
    *--top = nullptr;
  *--top = this;                             // r14
  *--top = reinterpret_cast<void*>(&start);  // r15
  stack_pointer_ = top;
#ifdef __SANITIZE_THREAD__
  identity_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {  // NOLINT(modernize-use-equals-default): not with a sanitizer
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(identity_);
#endif
}

// Runs after a switch to this fiber.
MUO_SIMT_UNSEEN void Fiber::arrived([[maybe_unused]] void* shadow) {
#ifdef __SANITIZE_ADDRESS__
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(shadow, &stack, &bytes);
  if (owner_.stack != nullptr) return;
  owner_.stack = stack;
  owner_.stack_bytes = bytes;
#endif
}

MUO_SIMT_UNSEEN void Fiber::start(Fiber* fiber) {
  fiber->arrived(nullptr);
  fiber->body_(fiber->argument_);
}

MUO_SIMT_UNSEEN void Fiber::resume() {
#ifdef __SANITIZE_ADDRESS__
  owner_.stack = nullptr;
  void* shadow = nullptr;
  __sanitizer_start_switch_fiber(&shadow, stack_, kStackBytes);
#endif
#ifdef __SANITIZE_THREAD__
  owner_.identity = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(identity_, __tsan_switch_to_fiber_no_sync);
#endif
  muo_simt_switch(&owner_.stack_pointer, stack_pointer_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(shadow, nullptr, nullptr);
#endif
}

MUO_SIMT_UNSEEN void Fiber::suspend() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&shadow_, owner_.stack, owner_.stack_bytes);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(owner_.identity, __tsan_switch_to_fiber_no_sync);
#endif
  muo_simt_switch(&stack_pointer_, owner_.stack_pointer);
  arrived(shadow_);
}

MUO_SIMT_UNSEEN void Fiber::switch_to(Fiber& next) {
  next.owner_ = owner_;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&shadow_, next.stack_, kStackBytes);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(next.identity_, __tsan_switch_to_fiber_no_sync);
#endif
  muo_simt_switch(&stack_pointer_, next.stack_pointer_);
  arrived(shadow_);
}

FiberStacks::FiberStacks(std::size_t count) : bytes_(count * (Fiber::kStackBytes + kPage)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MUO_CHECK(memory != MAP_FAILED, "cannot reserve ", bytes_,
            " bytes of addresses for the stacks of fibers");
  memory_ = static_cast<std::byte*>(memory);
}

FiberStacks::~FiberStacks() { munmap(memory_, bytes_); }

std::byte* FiberStacks::stack(std::size_t index) {
  std::byte* guard = memory_ + index * (Fiber::kStackBytes + kPage);
  MUO_CHECK(mprotect(guard, kPage, PROT_NONE) == 0,
            "cannot protect the guard page of a fiber's stack");
  return guard + kPage;
}

}  // namespace muo::simt
