#pragma once

#include <cstdint>
#include <memory>

#include "runtime/comm/process_exchange.h"
#include "runtime/plugin.h"

namespace muo {

// Exported by libmuograph_mpi.so as
//   extern "C" const muo::MpiPlugin* muograph_mpi_plugin();
// The library links the core and MPI (decision mpi-is-a-plug-in).
struct MpiPlugin {
  std::uint32_t version = kPluginVersion;
  // See make_mpi_exchange(). More than `longest` bytes are sent as several messages.
  std::unique_ptr<ProcessExchange> (*make)(int process, int processes, int longest) = nullptr;
};

}  // namespace muo
