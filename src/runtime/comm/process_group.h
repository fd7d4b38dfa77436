#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace muo {

// Ranks first to first + count - 1.
struct RankRange {
  int first = 0, count = 1;

  [[nodiscard]] int end() const { return first + count; }
  [[nodiscard]] bool contains(int rank) const { return first <= rank && rank < end(); }
};

// Independent sequences of collective calls: of the ranks' threads, and of the threads that save
// checkpoints in the background.
enum class Channel : std::uint8_t { kRun, kSaves };

// Returns the secret that only the processes of a launch know: any bytes. Throws InputError as long
// as there is none.
using LaunchSecret = std::function<std::string()>;

struct ProcessGroupOptions {
  int process = 0, processes = 1;
  // Where process 0 listens: an address of its host, or the host's name.
  std::string address = "127.0.0.1";
  int port = 0;
  LaunchSecret secret = {};  // the same in all processes; one with another secret is rejected
  int ranks = 1;             // of this process
  std::chrono::milliseconds join_timeout = std::chrono::seconds(60);  // until all have joined
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  // A process without a heartbeat for this long has failed.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(20);
};

// The processes of a launched world. Each holds a contiguous range of ranks, in the order of the
// processes. They are connected to process 0, over TCP, and exchange short messages: decisions,
// names, failures. A thread of this object sends a heartbeat each second and receives failures.
//
// broadcast(), gather() and barrier() are collective: one thread of each process calls them (the
// leader of a Rendezvous, or the only thread), in the same order on a channel; calls with different
// `site` are a failure that names both. If a process fails, ends without leave(), or sends no
// heartbeat for too long, every call, also a waiting one, throws PeerFailed with the cause, or
// InputError if the cause was one. Time in which this process itself was suspended does not count.
// A call that RankProgress::check() ends, as a rank waits in it, counts as made.
//
// Processes prove to each other that they know the launch's secret before anything else is
// exchanged, and every frame is authenticated (handshake.h). Nothing is encrypted.
class ProcessGroup {
 public:
  // Returns when all have joined. Throws Error that names those missing, and InputError if it
  // cannot listen on the address or `process` joins twice.
  explicit ProcessGroup(const ProcessGroupOptions& options);
  ~ProcessGroup();  // without leave(): a failure for the others
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  [[nodiscard]] int process() const;
  [[nodiscard]] int processes() const;
  [[nodiscard]] bool is_first() const { return process() == 0; }
  [[nodiscard]] int world() const;
  [[nodiscard]] RankRange ranks() const { return ranks_of(process()); }
  [[nodiscard]] RankRange ranks_of(int process) const;
  [[nodiscard]] int process_of(int rank) const;
  // Number of processes on this process' host, this one included.
  [[nodiscard]] int processes_here() const;
  // "process 1 (ranks 2 to 3, on node-b, pid 4711)", for messages.
  [[nodiscard]] std::string describe(int process) const;

  // Returns the result of process 0's `make` in all processes. `make` runs in process 0 only, once
  // all have called; if it throws, process 0 throws, and the others wait until process 0 calls
  // fail().
  [[nodiscard]] std::string broadcast(Channel channel, std::string_view site,
                                      const std::function<std::string()>& make);
  // Returns every process' `mine`, in the order of processes, in process 0; returns nothing
  // elsewhere, without waiting. A message is shorter than 64 MiB.
  [[nodiscard]] std::vector<std::string> gather(Channel channel, std::string_view site,
                                                std::string mine);
  // Returns when all have called it.
  void barrier(Channel channel, std::string_view site);

  // Reports a failure of this process: the others end with `cause`. Only the world's first failure
  // counts. From any thread; it has been sent when this returns, unless process 0 does not read.
  void fail(const std::string& cause, int exit_code) noexcept;
  // `callback` is called once, if another process fails or is lost, by a thread of this object, or
  // immediately if one has already. Null removes the callback; on return no call is in progress, so
  // the callback must not call this itself.
  using OnFailure = std::function<void(const std::string& cause, int exit_code)>;
  void on_failure(OnFailure callback);

  // `here`: for how long all ranks of this process have only waited for other processes; sent to
  // process 0 with each heartbeat. In process 0 returns the least such time of all other processes,
  // as of their last heartbeats; elsewhere 0. From any thread.
  std::chrono::milliseconds share_idle_time(std::chrono::milliseconds here);

  // Orderly end: waits until all processes leave. Idempotent.
  void leave();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo
