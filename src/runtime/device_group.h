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

// Everything that a rank's thread needs. A rank is neither a device index nor a thread number.
struct RankContext {
  int rank = 0;
  int world = 1;
  Device& device;
  Stream& compute;
  Stream& comm;    // all collectives, in one total order; is `compute` with Branches::kOne
  Stream& update;  // optimizer work of owners, concurrent with backward; likewise
  Communicator& communicator;
  Rendezvous& barrier;  // for the threads of this process' ranks, outside captures
  RankProgress& progress;
  CommonMemory* common = nullptr;  // of this process' ranks; null if each has memory of a device
  Interruption* interruption = nullptr;  // of this process' ranks
  ProcessGroup* processes = nullptr;     // of the world; null: this process has all ranks

  // Waits until the work enqueued on `stream`, or before the record of `event`, is done. Throws
  // PeerFailed if a peer failed meanwhile; device memory then must not be used.
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

// Number of streams per rank. With kOne, `comm` and `update` are `compute`, so that a rank's work
// has a single order: slower, but then no hardware queue can hold a collective ahead of work that
// its peers on the same device wait for.
enum class Branches : std::uint8_t { kOne = 1, kThree = 3 };

struct GroupOptions {
  int world = 1;
  // The launched world, of which this process holds a part; null: this process holds all of it.
  ProcessGroup* processes = nullptr;
  ProcessExchange* exchange = nullptr;  // between host ranks of `processes`
  // Empty: kOne if ranks share a device, as its driver may put each fork of a graph on another
  // hardware queue; else kThree.
  std::optional<Branches> branches = {};
  const BackendPlugin* plugin = nullptr;  // backend of the devices; null: host
  int ranks_per_device = 1;               // virtual ranks that share a device of the plug-in
  int first_device = 0;                   // plug-in's index of the first local rank's device
  CommunicatorKind communicator = CommunicatorKind::kHost;
  // Host backend: graphs replay their nodes in a pseudo-random topological order, a new one at each
  // launch, so that a missing event yields wrong results. Empty: in capture order.
  std::optional<std::uint64_t> random_order_seed = {};
  WatchOptions watch = {};

  // The ranks of this process.
  [[nodiscard]] RankRange local() const {
    return processes != nullptr ? processes->ranks() : RankRange{.first = 0, .count = world};
  }
  [[nodiscard]] bool is_first() const { return processes == nullptr || processes->is_first(); }
  [[nodiscard]] int devices_here() const { return local().count / ranks_per_device; }
  // The same devices, for work that is not shared with other processes.
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

// The ranks of this process, each with a thread, a device and a communicator. A failure here is
// reported to the other processes, and a failure there ends these ranks with its cause.
class DeviceGroup {
 public:
  explicit DeviceGroup(const GroupOptions& options);
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  // Runs `body` once per rank, each on its own thread, and joins them. If ranks throw, or are stuck
  // (watchdog.h), the communicator and the barrier are aborted, so that peers end with PeerFailed,
  // and the first root cause is rethrown here as Error, its text prefixed by "rank R, step S: "
  // (InputError keeps its type and text). The group is unusable afterwards. If a rank does not
  // return even then, the program ends. Memory that `body` allocates on devices of a plug-in is
  // freed with the group, when all devices are idle.
  void run(const std::function<void(RankContext&)>& body);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo
