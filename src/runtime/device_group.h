#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/plugin.h"
#include "runtime/rendezvous.h"

namespace muo {

// All that a rank's thread gets. A rank is neither a device index nor a thread number.
struct RankContext {
  int rank = 0;
  int world = 1;
  Device& device;
  Stream& compute;
  Stream& comm;    // every collective, in one total order
  Stream& update;  // owners' optimizer work, beside backward
  Communicator& communicator;
  Rendezvous& barrier;  // of the host threads, outside captures
};

struct GroupOptions {
  int world = 1;
  const BackendPlugin* plugin = nullptr;  // of the devices; null: the host's own
  int ranks_per_device = 1;               // virtual ranks that share a device, of a plug-in
  CommunicatorKind communicator = CommunicatorKind::kHost;
  // Host backend: graphs replay their nodes in a pseudo-random topological order, anew at each
  // launch, so that a forgotten event is a wrong result. Without it, in capture order.
  std::optional<std::uint64_t> random_order_seed = {};
};

// The local ranks: a thread, a device and a communicator each.
class DeviceGroup {
 public:
  explicit DeviceGroup(const GroupOptions& options);
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  // Runs `body` once per rank, each on its own thread, and joins them. If ranks throw, the
  // communicator and the barrier break at once, so that peers end with PeerFailed, and the first
  // root cause is rethrown here as Error, with "rank R: " before its text (InputError keeps its
  // type and text). The group is unusable afterwards. What `body` allocates on the devices of a
  // plug-in is freed with the group, when all devices are idle.
  void run(const std::function<void(RankContext&)>& body);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo
