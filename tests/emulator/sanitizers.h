#pragma once

// For ThreadSanitizer each CUDA thread is a fiber, and switches between fibers do not order them.
// They are ordered only by what orders threads on a GPU: barriers, warp collectives, the begin and
// the end of a block. So it detects races between CUDA threads although one OS thread runs them in
// turn.

#ifdef __SANITIZE_THREAD__
#  include <sanitizer/tsan_interface.h>
// For the emulator's own functions, which work on data shared by all fibers, and for functions that
// switch, which are entered on one fiber and left on another. noinline, as inlined code would be
// instrumented.
#  define MUO_SIMT_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#  define MUO_SIMT_UNSEEN
#endif

namespace muo::simt {

// Everything before release(edge) happens before everything after a later acquire(edge).
inline void acquire([[maybe_unused]] void* edge) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(edge);
#endif
}
inline void release([[maybe_unused]] void* edge) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(edge);
#endif
}

}  // namespace muo::simt
