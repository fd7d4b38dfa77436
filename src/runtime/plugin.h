#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/device.h"
#include "runtime/rendezvous.h"

namespace muo {

// Both sides of the seam are built from one tree; a library of another build is refused.
inline constexpr std::uint32_t kPluginVersion = 6;

// A backend that lives in a shared library of its own (decision cuda-is-a-plug-in). The library
// links the core, registers its kernels when it is loaded, and exports
//   extern "C" const muo::BackendPlugin* muograph_backend_plugin();
struct BackendPlugin {
  std::uint32_t version = kPluginVersion;
  // Empty if devices can be used; else one line: what is missing, and what to do.
  std::string (*missing)() = nullptr;
  int (*device_count)() = nullptr;
  std::string (*name)(int index) = nullptr;  // of the device's kind, as its maker calls it
  // One line for `doctor`: name, memory, compute capability.
  std::string (*describe)(int index) = nullptr;
  // Bytes of memory that are free on device `index` now, and that it has.
  std::int64_t (*available_memory)(int index) = nullptr;
  std::int64_t (*total_memory)(int index) = nullptr;
  // Empty if each of the first `count` devices can access the others' memory; else who cannot
  // whose.
  std::string (*no_peer_access)(int count) = nullptr;
  // Device `index`, for the rank of the calling thread. Throws Error.
  std::unique_ptr<Device> (*make_device)(int rank, int index) = nullptr;
  // The ends of `members`. A device that waits for a peer's gives up after `deadline`; 0: never.
  // Throws InputError if this kind cannot serve these devices, and says which can.
  std::unique_ptr<CommunicatorGroup> (*make_communicators)(
      CommunicatorKind kind, const CommunicatorMembers& members,
      std::chrono::milliseconds deadline) = nullptr;
  // Memory that the host and device `index` reach at one address, where the device works on it at
  // its own speed; not zeroed. For tests of kernels: a run copies. Throws Error.
  std::unique_ptr<Buffer> (*allocate_managed)(int index, std::int64_t bytes) = nullptr;
  // Timeouts::in_steps with these devices.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

// What became of loading a backend: a plug-in, or one line that says why there is none.
struct LoadedPlugin {
  const BackendPlugin* plugin = nullptr;
  std::string missing = {};
};

// Loads a library from the folder of the core library, where plug-ins lie. It stays loaded. Null:
// `missing` says in one line why.
void* open_beside_core(const std::string& file, std::string& missing);

// Loads lib<name>.so, as above. Later calls return what the first one found.
LoadedPlugin load_plugin(std::string_view name);
// The CUDA backend: the plug-in is there and finds a device. Tests put another plug-in into its
// place: MUO_CUDA_PLUGIN=muograph_simt.
LoadedPlugin load_cuda();

}  // namespace muo
