#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/device.h"
#include "runtime/rendezvous.h"

namespace muo {

// Core and plug-ins are built from one tree; a library of another build is rejected.
inline constexpr std::uint32_t kPluginVersion = 8;

// Energy, clock and power limit of a device, as its driver reports them.
struct PowerReading {
  double joules = 0;       // consumed since some fixed moment
  double clock_mhz = 0;    // of the multiprocessors, now
  double limit_watts = 0;  // 0: unknown
};

// A backend in its own shared library (decision cuda-is-a-plug-in). The library links the core,
// registers its kernels when it is loaded, and exports
//   extern "C" const muo::BackendPlugin* muograph_backend_plugin();
struct BackendPlugin {
  std::uint32_t version = kPluginVersion;
  // Empty if devices can be used; else one line: the problem and the remedy.
  std::string (*missing)() = nullptr;
  int (*device_count)() = nullptr;
  std::string (*name)(int index) = nullptr;  // the vendor's name of the device's model
  // One line for `doctor`: name, memory, compute capability.
  std::string (*describe)(int index) = nullptr;
  // Free and total memory of device `index`, in bytes.
  std::int64_t (*available_memory)(int index) = nullptr;
  std::int64_t (*total_memory)(int index) = nullptr;
  // Empty if the driver does not report the energy of device `index`. For any thread.
  std::optional<PowerReading> (*read_power)(int index) = nullptr;
  // Makes graphs that are captured from now on observable (Graph::observe). Call it before the
  // first device is made. Empty, or one line with the reason why that is not possible.
  std::string (*record_nodes)() = nullptr;
  // Empty if each of the first `count` devices can access the others' memory; else a message that
  // names a pair which cannot.
  std::string (*no_peer_access)(int count) = nullptr;
  // Makes device `index` for `rank`, on the calling thread. Throws Error.
  std::unique_ptr<Device> (*make_device)(int rank, int index) = nullptr;
  // Makes the local ends of `members`. A device's wait for a peer ends with an error after
  // `deadline`; 0: never. Throws InputError, naming an alternative, if this kind does not support
  // these devices.
  std::unique_ptr<CommunicatorGroup> (*make_communicators)(
      CommunicatorKind kind, const CommunicatorMembers& members,
      std::chrono::milliseconds deadline) = nullptr;
  // Memory that the host and device `index` access at the same address, the device at its full
  // speed; not zeroed. For tests of kernels only. Throws Error.
  std::unique_ptr<Buffer> (*allocate_managed)(int index, std::int64_t bytes) = nullptr;
  // Timeouts::in_steps for these devices.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

// Result of loading a backend: the plug-in, or one line with the reason why there is none.
struct LoadedPlugin {
  const BackendPlugin* plugin = nullptr;
  std::string missing = {};
};

// Loads a library from the core library's folder, for the life of the process. Null on failure,
// with a one-line reason in `missing`.
void* open_beside_core(const std::string& file, std::string& missing);

// Loads lib<name>.so, as above. Later calls return the first call's result.
LoadedPlugin load_plugin(std::string_view name);
// Loads the CUDA backend; fails if it finds no device. Tests load another plug-in instead:
// MUO_CUDA_PLUGIN=muograph_simt.
LoadedPlugin load_cuda();

}  // namespace muo
