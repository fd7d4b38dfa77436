#pragma once

// The emulator's side of runtime/cuda/launch.h: all that a kernel may use when g++ compiles it.

#include <cstddef>
#include <tuple>
#include <utility>

#include "runtime/stream.h"
#include "simt/emulator/atomics.h"
#include "simt/emulator/bfloat16.h"
#include "simt/emulator/gpu.h"
#include "simt/emulator/intrinsics.h"
#include "simt/emulator/scheduler.h"
#include "simt/emulator/shared_memory.h"
#include "simt/emulator/types.h"
#include "simt/emulator/warp.h"

// In the namespace of the kernels that say `extern __shared__ type name[];`.
// NOLINTBEGIN(bugprone-macro-parentheses): names cannot stand in them
#define MUO_DYNAMIC_SHARED(type, name)                                \
  alignas(1024) [[maybe_unused]] static constinit thread_local type   \
      name[::muo::simt::kMostSharedBytes / sizeof(type)]{};           \
  static const ::muo::simt::DynamicShared muo_registration_of_##name{ \
      [] { return reinterpret_cast<std::byte*>(name); }, sizeof name};
// NOLINTEND(bugprone-macro-parentheses)

// A stream of the tier: kernels are work on a host stream, which runs them at once, in the caller,
// or records them while it captures.
struct CUstream_st {
  muo::Stream& host;
};

namespace muo::simt {

// Of a kernel's parameters as they lie one after the other.
template <class... Parameters>
constexpr std::size_t parameter_bytes() {
  std::size_t end = 0;
  ((end = (end + alignof(Parameters) - 1) / alignof(Parameters) * alignof(Parameters) +
          sizeof(Parameters)),
   ...);
  return end;
}

template <class... Parameters, class... Arguments>
void launch(bool resident, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            std::size_t shared_bytes, NativeStream stream, Arguments&&... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  };
  const void* function = reinterpret_cast<const void*>(kernel);
  Launch launch{.kernel = function,
                .call =
                    [](const void* p) {
                      const auto& of = *static_cast<const Call*>(p);
                      std::apply(of.kernel, of.arguments);
                    },
                .arguments = nullptr,
                .grid = grid,
                .block = block,
                .shared_bytes = shared_bytes,
                .shared_opt_in = simt::shared_opt_in(function, shared_bytes),
                .parameter_bytes = parameter_bytes<Parameters...>(),
                .resident = resident};
  check(launch);
  auto run = [launch, call = Call{kernel, {std::forward<Arguments>(arguments)...}}]() mutable {
    launch.arguments = &call;
    simt::run(launch);
  };
  if (stream == nullptr)
    run();
  else
    stream->host.enqueue_host("a kernel", {}, run);
}

}  // namespace muo::simt

namespace muo::cuda {

// Throws Error, with the kernel's name, for what no GPU would accept. Without stream: at once.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            NativeStream stream, Arguments&&... arguments) {
  simt::launch(false, kernel, grid, block, shared_bytes, stream,
               std::forward<Arguments>(arguments)...);
}
// For grids whose blocks wait for blocks of other ranks' grids: all of a grid run at once.
template <class... Parameters, class... Arguments>
void launch_resident(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                     NativeStream stream, Arguments&&... arguments) {
  simt::launch(true, kernel, grid, block, shared_bytes, stream,
               std::forward<Arguments>(arguments)...);
}

inline std::size_t most_shared_bytes_of(const void* kernel) {
  return simt::most_dynamic_bytes(kernel);
}

// In a loop that waits for what another rank writes. (On a GPU: __nanosleep.) Without it the other
// threads of the block, and other ranks on few cores, would never get their turn.
inline void spin_pause(MUO_SIMT_SITE) { simt::Scheduler::current().pause(site); }

}  // namespace muo::cuda
