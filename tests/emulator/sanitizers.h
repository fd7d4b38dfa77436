#pragma once

// To ThreadSanitizer each CUDA thread is a fiber, and fibers are switched without an order between
// them. The only orders are the ones that a GPU gives: barriers, warp collectives, the begin and
// the end of a block. So it sees races between CUDA threads although one OS thread runs them in
// turn.

#ifdef __SANITIZE_THREAD__
#  include <sanitizer/tsan_interface.h>
// For the emulator's own work, which all fibers do on shared data, and for functions that switch:
// they are entered on one fiber and left on another. Not inlined, or it would be seen after all.
#  define MUO_SIMT_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#  define MUO_SIMT_UNSEEN
#endif

namespace muo::simt {

// What happened before release(edge) happened before what follows acquire(edge).
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
