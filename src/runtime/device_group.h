#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/comm/communicator.h"
#include "runtime/comm/process_exchange.h"
#include "runtime/comm/process_group.h"
#include "runtime/device.h"
#include "runtime/interruption.h"
#include "runtime/memory/arena.h"
#include "runtime/plugin.h"
#include "runtime/rank_progress.h"
#include "runtime/rendezvous.h"
#include "runtime/watchdog.h"

namespace muo {

// All that a rank's thread gets. A rank is neither a device index nor a thread number.
struct RankContext {
  int rank = 0;
  int world = 1;
  Device& device;
  Stream& compute;
  Stream& comm;    // every collective, in one total order; compute itself with Branches::kOne
  Stream& update;  // owners' optimizer work, beside backward; likewise
  Communicator& communicator;
  Rendezvous& barrier;  // of this process' ranks' threads, outside captures
  RankProgress& progress;
  CommonMemory* common = nullptr;        // of this process' ranks; absent where each has a device's
  Interruption* interruption = nullptr;  // of this process' ranks
  ProcessGroup* processes = nullptr;     // that hold the world; null: this one holds all of it

  // Until what was enqueued on `stream`, or what `event` recorded, is done. Throws PeerFailed if a
  // peer failed meanwhile: what device memory holds is then of no use.
  void wait(Stream& stream) const { wait_for(stream); }
  void wait(Event& event) const { wait_for(event); }

 private:
  template <class Waitable>
  void wait_for(Waitable& work) const {
    {
      const RankProgress::Scope waiting(Activity::kDevice);
      work.synchronize();
    }
    communicator.check();
    RankProgress::alive();
  }
};

// Streams of a rank. With one, its work has a single order, as `compute` is `comm` and `update`
// too: slower, but then no hardware queue can hold a collective in front of what its peers on the
// same device wait for.
enum class Branches : std::uint8_t { kOne = 1, kThree = 3 };

struct GroupOptions {
  int world = 1;
  // Of a launched world, of which this process holds a part; null: all of it.
  ProcessGroup* processes = nullptr;
  ProcessExchange* exchange = nullptr;  // of their host ranks
  // Empty: one where ranks share a device, whose driver may give every fork of a graph a queue of
  // its own, in turn; else three.
  std::optional<Branches> branches = {};
  const BackendPlugin* plugin = nullptr;  // of the devices; null: the host's own
  int ranks_per_device = 1;               // virtual ranks that share a device, of a plug-in
  int first_device = 0;                   // of a plug-in: the one of the first rank here
  CommunicatorKind communicator = CommunicatorKind::kHost;
  // Host backend: graphs replay their nodes in a pseudo-random topological order, anew at each
  // launch, so that a forgotten event is a wrong result. Without it, in capture order.
  std::optional<std::uint64_t> random_order_seed = {};
  WatchOptions watch = {};

  // The ranks of this process.
  [[nodiscard]] RankRange local() const {
    return processes != nullptr ? processes->ranks() : RankRange{.first = 0, .count = world};
  }
  [[nodiscard]] bool is_first() const { return processes == nullptr || processes->is_first(); }
  [[nodiscard]] int devices_here() const { return local().count / ranks_per_device; }
  // The same devices for work that is not shared with other processes.
  [[nodiscard]] GroupOptions alone() const {
    GroupOptions out = *this;
    out.world = local().count;
    out.processes = nullptr;
    out.exchange = nullptr;
    return out;
  }
  [[nodiscard]] Branches graph_branches() const {
    return branches.value_or(ranks_per_device > 1 ? Branches::kOne : Branches::kThree);
  }
};

// The ranks of this process: a thread, a device and a communicator each. What fails here is told to
// the other processes, and what fails there ends these ranks, with the cause.
class DeviceGroup {
 public:
  explicit DeviceGroup(const GroupOptions& options);
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  // Runs `body` once per rank, each on its own thread, and joins them. If ranks throw, or are stuck
  // (watchdog.h), the communicator and the barrier break at once, so that peers end with
  // PeerFailed, and the first root cause is rethrown here as Error, with "rank R, step S: " before
  // its text (InputError keeps its type and text). The group is unusable afterwards. If a rank does
  // not come back even then, the program ends. What `body` allocates on the devices of a plug-in is
  // freed with the group, when all devices are idle.
  void run(const std::function<void(RankContext&)>& body);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo
