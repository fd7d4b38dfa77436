#pragma once

// Everything that a kernel may use when g++ compiles it, and its execution.

#include <cstddef>
#include <tuple>
#include <utility>

#include "emulator/atomics.h"
#include "emulator/bfloat16.h"
#include "emulator/gpu.h"
#include "emulator/intrinsics.h"
#include "emulator/scheduler.h"
#include "emulator/shared_memory.h"
#include "emulator/types.h"
#include "emulator/warp.h"

#define MUO_SHARED_MEMORY                                                                          \
  static constinit thread_local ::muo::simt::SharedBytes muo_shared{};                             \
  static const ::muo::simt::DynamicShared muo_shared_registration{[] { return muo_shared.bytes; }, \
                                                                  sizeof muo_shared};              \
  template <class T>                                                                               \
  static T* shared_memory() {                                                                      \
    return reinterpret_cast<T*>(muo_shared.bytes);                                                 \
  }

namespace muo::simt {

// Bytes of a kernel's parameters with padding; 0 if a parameter has a larger alignment than their
// beginning, which differs between architectures.
template <class... Parameters>
constexpr std::size_t parameter_bytes() {
  if (((alignof(Parameters) > 16) || ...)) return 0;
  std::size_t end = 0;
  ((end = (end + alignof(Parameters) - 1) / alignof(Parameters) * alignof(Parameters) +
          sizeof(Parameters)),
   ...);
  return end;
}

// A kernel with its arguments.
template <class... Parameters>
class Call {
 public:
  template <class... Arguments>
  explicit Call(void (*kernel)(Parameters...), Arguments&&... arguments)
      : kernel_(kernel), values_{std::forward<Arguments>(arguments)...} {}

  [[nodiscard]] const std::tuple<Parameters...>& values() const { return values_; }
  // Throws Error, with the kernel's name, if no GPU would accept the launch.
  [[nodiscard]] Launch checked(dim3 grid, dim3 block, std::size_t shared_bytes,
                               std::size_t shared_opt_in, bool resident) const {
    const Launch launch{.kernel = reinterpret_cast<const void*>(kernel_),
                        .call = &call,
                        .arguments = nullptr,
                        .grid = grid,
                        .block = block,
                        .shared_bytes = shared_bytes,
                        .shared_opt_in = shared_opt_in,
                        .parameter_bytes = parameter_bytes<Parameters...>(),
                        .resident = resident};
    check(launch);
    return launch;
  }
  // `launch` must have been returned by checked() of this object or of a copy.
  void run(Launch launch) const {
    launch.arguments = this;
    simt::run(launch);
  }

 private:
  static void call(const void* p) {
    const auto& of = *static_cast<const Call*>(p);
    std::apply(of.kernel_, of.values_);
  }

  void (*kernel_)(Parameters...);
  std::tuple<Parameters...> values_;
};

}  // namespace muo::simt

namespace muo::cuda {

// Call it in loops that wait for another rank's writes (on a GPU it is __nanosleep). Without it the
// other threads of the block, and other ranks on few cores, would never run.
inline void spin_pause(MUO_SIMT_SITE) {
  simt::Scheduler::current().pause(simt::Turn::kPaused, site);
}

}  // namespace muo::cuda
