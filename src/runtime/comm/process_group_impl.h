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

// Time as far as this process ran in it: who sleeps much longer than it wanted to was stopped.
class RunningTime {
 public:
  explicit RunningTime(std::chrono::steady_clock::duration sleep) : most_(2 * sleep) {}
  // Since the last call.
  std::chrono::steady_clock::duration lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::min(now - std::exchange(last_, now), most_);
  }

 private:
  const std::chrono::steady_clock::duration most_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// One mutex guards all; who holds it waits for nothing. The thread receives, and sends what a
// caller's send() has left over.
class ProcessGroup::Impl {
 public:
  explicit Impl(const ProcessGroupOptions& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Returns when all are there; then members() do not change any more.
  void start();
  [[nodiscard]] const GroupMembers& members() const { return members_; }
  [[nodiscard]] int process() const { return options_.process; }

  std::string from_first(Channel channel, const std::string& call,
                         const std::function<std::string()>& make);
  std::vector<std::string> to_first(Channel channel, const std::string& call, std::string mine);
  void fail(const std::string& cause, int exit_code);
  std::chrono::milliseconds share_idle_time(std::chrono::milliseconds here);
  void on_failure(OnFailure told);
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
    std::array<std::deque<GroupFrame>, kChannels> parts;  // of meetings, not taken yet
  };
  struct Line {  // of a channel
    std::uint64_t meetings = 0;
    bool meeting = false;
  };
  class Meeting;

  [[nodiscard]] bool is_first() const { return options_.process == 0; }
  [[nodiscard]] Peer& peer(int process) { return peers_[static_cast<std::size_t>(process)]; }

  // With the lock, by any thread.
  void wait(Lock& lock, const std::function<bool()>& ready);
  void throw_if_failed() const;
  void send_all(const GroupFrame& frame);
  void set_failure(GroupFailure failure, bool ours);
  [[nodiscard]] bool part_has_come(const Meeting& meeting, int process);
  [[nodiscard]] bool all_have_come(const Meeting& meeting);
  std::string take_part(const Meeting& meeting, int process);
  [[nodiscard]] bool all_have_left();
  [[nodiscard]] std::string missing_text() const;
  void wake() const;

  // With the lock, by the thread.
  void work();
  void list_sockets(std::vector<pollfd>& sockets) const;
  void serve(const std::vector<pollfd>& sockets, Duration elapsed);
  void receive(int process);
  [[nodiscard]] bool take(int process, GroupFrame frame);
  [[nodiscard]] bool queue(int process, GroupFrame frame);
  void lose(int process, FrameConnection::State state);
  void admit(GroupReception::Comer comer);
  void hear(const GroupFailure& failure);
  [[nodiscard]] bool is_done() const;
  void start_to_tell();

  void tell_now();  // within told_mutex_

  const ProcessGroupOptions options_;
  const Duration period_;
  const FileDescriptor wake_;

  std::mutex mutex_;
  std::condition_variable changed_;
  GroupMembers members_;
  std::vector<Peer> peers_;  // by process; all but process 0 are connected to that one only
  std::optional<GroupReception> reception_;
  std::array<Line, kChannels> lines_;
  bool complete_ = false, left_ = false, closing_ = false;
  std::optional<GroupFailure> failure_;
  bool ours_ = false;  // it is this process that failed
  bool telling_ = false;
  Duration since_beat_{0}, parting_{0};
  std::chrono::milliseconds idle_{0};

  std::mutex told_mutex_;  // held while told_ runs; locked before the other one
  OnFailure told_;
  std::thread teller_;  // its own, as who is told may take long, and the beats go on
  std::thread thread_;
};

}  // namespace muo
