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

// Sequences of meetings that do not wait for each other: of the ranks' threads, and of those that
// write checkpoints in the background.
enum class Channel : std::uint8_t { kRun, kSaves };

// What the processes of a launch know and nobody else does: any bytes. Throws InputError as long as
// there is none.
using LaunchSecret = std::function<std::string()>;

struct ProcessGroupOptions {
  int process = 0, processes = 1;
  std::string address = "127.0.0.1";  // where process 0 listens: one of its own, or its host's name
  int port = 0;
  LaunchSecret secret = {};  // the same in all processes; who does not know it is turned away
  int ranks = 1;             // of this process
  std::chrono::milliseconds patience = std::chrono::seconds(60);  // until all are there
  std::chrono::milliseconds beat = std::chrono::seconds(1);
  std::chrono::milliseconds silence = std::chrono::seconds(20);  // without a beat: a failure
};

// The processes of a launched world, each of which holds a run of its ranks, in the order of the
// processes. They meet at process 0, over TCP; what they say there is short: decisions, names,
// failures. A thread of this object beats each second and hears of failures.
//
// Meetings are collective: one thread of each process calls them (the leader of a Rendezvous, or
// the only thread there is), in the same order on a channel; a call that meets one of another
// `site` is a failure that names both. If a process fails, ends without leave(), or is silent for
// too long, every meeting, also one that waits, throws PeerFailed with the cause, or InputError if
// that is what the cause was. Time in which this process was stopped itself does not count. A
// meeting that RankProgress::check() ends, as a rank waits in it, counts as held.
//
// Processes prove to each other that they know the launch's secret before they say anything, and
// every frame is authenticated (handshake.h). Nothing is encrypted.
class ProcessGroup {
 public:
  // Returns when all are there. Throws Error that names those who are missing, and InputError if
  // the address cannot be listened on or `process` is there twice.
  explicit ProcessGroup(const ProcessGroupOptions& options);
  ~ProcessGroup();  // without leave(): the others take it for a failure
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  [[nodiscard]] int process() const;
  [[nodiscard]] int processes() const;
  [[nodiscard]] bool is_first() const { return process() == 0; }
  [[nodiscard]] int world() const;
  [[nodiscard]] RankRange ranks() const { return ranks_of(process()); }
  [[nodiscard]] RankRange ranks_of(int process) const;
  [[nodiscard]] int process_of(int rank) const;
  // Processes of this process' host, this one included.
  [[nodiscard]] int processes_here() const;
  // "process 1 (ranks 2 to 3, on node-b, pid 4711)", for messages.
  [[nodiscard]] std::string describe(int process) const;

  // What process 0 made, on all. `make` runs in process 0 only, when all have come; what it throws
  // process 0 throws, and the others wait until it says fail().
  [[nodiscard]] std::string from_first(Channel channel, std::string_view site,
                                       const std::function<std::string()>& make);
  // Process 0 gets what every process says, in their order; the others get nothing, and do not
  // wait. A message is shorter than 64 MiB.
  [[nodiscard]] std::vector<std::string> to_first(Channel channel, std::string_view site,
                                                  std::string mine);
  // Returns when all have come.
  void meet(Channel channel, std::string_view site);

  // This process fails: the others end with `cause`. Only the first failure of the world counts.
  // From any thread; it has been sent when this returns, unless process 0 does not read.
  void fail(const std::string& cause, int exit_code) noexcept;
  // Called once, if another process fails or is lost, by a thread of this object (or at once, if
  // one has). Null: nobody is told any more; on return no call is under way, so `told` does not
  // call this itself.
  using OnFailure = std::function<void(const std::string& cause, int exit_code)>;
  void on_failure(OnFailure told);

  // For how long all ranks of this process have only waited for others, which process 0 hears with
  // each beat. Returns there for how long all ranks of every other process have, as of their last
  // beats; elsewhere 0. From any thread.
  std::chrono::milliseconds share_idle_time(std::chrono::milliseconds here);

  // The end in good order: waits until all leave. Idempotent.
  void leave();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo
