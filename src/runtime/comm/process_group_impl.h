#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "runtime/comm/frame_connection.h"
#include "runtime/comm/group_frame.h"
#include "runtime/comm/group_handshake.h"
#include "runtime/comm/group_members.h"
#include "runtime/comm/process_group.h"

namespace muo {

// Time during which this process ran: a sleep that took much longer than requested counts only in
// part, as the process was suspended.
class RunningTime {
 public:
  explicit RunningTime(std::chrono::steady_clock::duration sleep) : max_elapsed_(2 * sleep) {}
  // Time since the last call.
  std::chrono::steady_clock::duration elapsed() {
    const auto now = std::chrono::steady_clock::now();
    return std::min(now - std::exchange(last_, now), max_elapsed_);
  }

 private:
  const std::chrono::steady_clock::duration max_elapsed_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// One mutex guards all members; a thread that holds it does not wait. The thread receives, and
// sends what a caller's send() has left unsent.
class ProcessGroup::Impl {
 public:
  explicit Impl(const ProcessGroupOptions& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Returns when all have joined; members() do not change afterwards.
  void start();
  [[nodiscard]] const GroupMembers& members() const { return members_; }
  [[nodiscard]] int process() const { return options_.process; }

  std::string broadcast(Channel channel, const std::string& call,
                        const std::function<std::string()>& make);
  std::vector<std::string> gather(Channel channel, const std::string& call, std::string mine);
  void fail(const std::string& cause, int exit_code);
  std::chrono::milliseconds share_idle_time(std::chrono::milliseconds here);
  void on_failure(OnFailure callback);
  void leave();

 private:
  using Duration = std::chrono::steady_clock::duration;
  using Lock = std::unique_lock<std::mutex>;
  static constexpr std::size_t kChannels = 2;

  struct Peer {
    std::optional<FrameConnection> connection;
    Duration silence{0};
    std::chrono::milliseconds idle{0};  // see share_idle_time()
    bool left = false;
    std::array<std::deque<GroupFrame>, kChannels> parts;  // received parts of calls
  };
  struct ChannelState {
    std::uint64_t calls = 0;
    bool in_call = false;
  };
  class GroupCall;

  [[nodiscard]] bool is_first() const { return options_.process == 0; }
  [[nodiscard]] Peer& peer(int process) { return peers_[static_cast<std::size_t>(process)]; }

  // Called with the lock held, by any thread.
  void wait(Lock& lock, const std::function<bool()>& ready);
  void throw_if_failed() const;
  void send_all(const GroupFrame& frame);
  void set_failure(GroupFailure failure, bool ours);
  [[nodiscard]] bool part_arrived(const GroupCall& group_call, int process);
  [[nodiscard]] bool all_arrived(const GroupCall& group_call);
  std::string take_part(const GroupCall& group_call, int process);
  [[nodiscard]] bool all_have_left();
  [[nodiscard]] std::string missing_text() const;
  void wake() const;

  // Called with the lock held, by the thread.
  void work();
  void list_sockets(std::vector<pollfd>& sockets) const;
  void serve(const std::vector<pollfd>& sockets, Duration elapsed);
  void receive(int process);
  [[nodiscard]] bool take(int process, GroupFrame frame);
  [[nodiscard]] bool queue(int process, GroupFrame frame);
  void lose(int process, FrameConnection::State state);
  void admit(GroupAcceptor::Joiner joiner);
  void on_peer_failure(const GroupFailure& failure);
  [[nodiscard]] bool is_done() const;
  void start_notifier();

  void notify_now();  // with callback_mutex_ held

  const ProcessGroupOptions options_;
  const Duration period_;
  const FileDescriptor wake_;

  std::mutex mutex_;
  std::condition_variable changed_;
  GroupMembers members_;
  std::vector<Peer> peers_;  // by process; others than process 0 are connected to process 0 only
  std::optional<GroupAcceptor> acceptor_;
  std::array<ChannelState, kChannels> channels_;
  bool complete_ = false, left_ = false, closing_ = false;
  std::optional<GroupFailure> failure_;
  bool ours_ = false;  // the failure is this process' own
  bool notifying_ = false;
  Duration since_beat_{0}, closing_time_{0};
  std::chrono::milliseconds idle_{0};

  std::mutex callback_mutex_;  // held while callback_ runs; locked before mutex_
  OnFailure callback_;
  std::thread notifier_;  // separate, as callback_ may be slow and heartbeats must continue
  std::thread thread_;
};

}  // namespace muo
