#pragma once

#include <cstdint>
#include <memory>

#include "runtime/comm/process_exchange.h"
#include "runtime/plugin.h"

namespace muo {

// What libmuograph_mpi.so exports as
//   extern "C" const muo::MpiPlugin* muograph_mpi_plugin();
// It links the core and MPI (decision mpi-is-a-plug-in).
struct MpiPlugin {
  std::uint32_t version = kPluginVersion;
  // As make_mpi_exchange(). What is larger than `longest`, in bytes, travels as several messages.
  std::unique_ptr<ProcessExchange> (*make)(int process, int processes, int longest) = nullptr;
};

}  // namespace muo
