// The thread of a ProcessGroup: receives on its sockets, sends heartbeats, detects lost processes,
// and closes connections.
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "runtime/comm/process_group_impl.h"

namespace muo {
namespace {

using std::chrono::milliseconds;
using State = FrameConnection::State;
using Type = GroupFrame::Type;

// Time at the end to send what is unsent, and for the peers to close their side.
constexpr milliseconds kCloseTimeout(2000), kClosePeriod(20);

}  // namespace

void ProcessGroup::Impl::work() {
  RunningTime time(period_);
  std::vector<pollfd> sockets;
  Lock lock(mutex_);
  while (!is_done()) {
    list_sockets(sockets);
    const Duration sleep = closing_ ? std::min<Duration>(period_, kClosePeriod) : period_;
    lock.unlock();
    static_cast<void>(::poll(sockets.data(), sockets.size(),
                             static_cast<int>(std::chrono::ceil<milliseconds>(sleep).count())));
    std::uint64_t wakes = 0;
    static_cast<void>(!::read(wake_.number(), &wakes, sizeof(wakes)));
    lock.lock();
    serve(sockets, time.elapsed());
    start_notifier();
  }
}

bool ProcessGroup::Impl::is_done() const {
  const auto is_waited_for = [&](const Peer& peer) {
    return peer.connection && peer.silence <= options_.heartbeat_timeout;
  };
  return closing_ &&
         (closing_time_ >= kCloseTimeout || std::ranges::none_of(peers_, is_waited_for));
}

// The peers' sockets come first, in the order of processes.
void ProcessGroup::Impl::list_sockets(std::vector<pollfd>& sockets) const {
  sockets.clear();
  for (const Peer& peer : peers_)
    if (peer.connection) {
      const int unsent = peer.connection->has_unsent() ? POLLOUT : 0;
      sockets.push_back({.fd = peer.connection->number(),
                         .events = static_cast<short>(POLLIN | unsent),
                         .revents = 0});
    }
  sockets.push_back({.fd = wake_.number(), .events = POLLIN, .revents = 0});
  if (acceptor_ && !closing_)
    for (const int number : acceptor_->descriptors())
      sockets.push_back({.fd = number, .events = POLLIN, .revents = 0});
}

void ProcessGroup::Impl::serve(const std::vector<pollfd>& sockets, Duration elapsed) {
  since_beat_ += elapsed;
  if (closing_) closing_time_ += elapsed;
  const bool beats = !closing_ && !left_ && since_beat_ >= options_.heartbeat;
  if (beats) since_beat_ = Duration::zero();
  auto socket = sockets.begin();
  for (int process = 0; process < options_.processes; ++process) {
    Peer& other = peer(process);
    if (!other.connection) continue;
    other.silence += elapsed;
    if (beats && !other.connection->has_unsent())
      other.connection->send(
          {.type = Type::kBeat, .number = static_cast<std::uint64_t>(idle_.count())});
    if (closing_) other.connection->finish();
    other.connection->flush();
    if (((socket++)->revents & ~POLLOUT) != 0) receive(process);
    // Checked after receiving what came while this process was suspended.
    if (other.silence > options_.heartbeat_timeout && !other.left)
      set_failure({.cause = concat("no heartbeat from ", members_.describe(process), " for ",
                                   seconds_text(options_.heartbeat_timeout),
                                   ": it hangs, or its host or the network is down")},
                  false);
  }
  if (left_) acceptor_.reset();
  if (!acceptor_ || closing_) return;
  for (GroupAcceptor::Joiner& joiner : acceptor_->receive(elapsed))
    admit(std::move(joiner));
}

void ProcessGroup::Impl::receive(int process) {
  Peer& other = peer(process);
  std::vector<GroupFrame> frames;
  State state = other.connection->receive(frames);
  other.silence = Duration::zero();
  if (closing_) frames.clear();
  for (GroupFrame& frame : frames)
    if (!take(process, std::move(frame))) state = State::kGarbage;
  if (state != State::kOpen || (left_ && !is_first())) lose(process, state);
}

// False on a protocol violation by `process`.
bool ProcessGroup::Impl::take(int process, GroupFrame frame) {
  switch (frame.type) {
    case Type::kBeat:
      peer(process).idle = milliseconds(frame.number);
      return true;
    case Type::kMembers: {
      const auto members = decode_members(frame.payload);
      if (is_first() || complete_ || !members || !members_.set(*members)) return false;
      complete_ = true;
      break;
    }
    case Type::kCall:
      return queue(process, std::move(frame));
    case Type::kFailure: {
      const auto failure = decode_failure(frame.payload);
      if (!failure) return false;
      on_peer_failure(*failure);
      break;
    }
    case Type::kBye:
      peer(process).left = true;
      left_ = left_ || !is_first();
      break;
    case Type::kHello:
    case Type::kRefusal:
      return false;
  }
  changed_.notify_all();
  return true;
}

// A process that calls soon waits for the others, so a correct one does not queue more than this.
bool ProcessGroup::Impl::queue(int process, GroupFrame frame) {
  constexpr std::size_t kMaxParts = 1024, kMaxBytes = 2 * GroupFrame::kMaxBytes;
  if (frame.channel >= kChannels) return false;
  std::deque<GroupFrame>& parts = peer(process).parts[frame.channel];
  std::size_t bytes = frame.payload.size();
  for (const GroupFrame& part : parts)
    bytes += part.payload.size();
  if (parts.size() >= kMaxParts || bytes > kMaxBytes) return false;
  parts.push_back(std::move(frame));
  changed_.notify_all();
  return true;
}

void ProcessGroup::Impl::on_peer_failure(const GroupFailure& failure) {
  if (is_first()) return set_failure(failure, false);
  if (failure_ == failure) return;  // this process' own, forwarded by process 0
  failure_ = failure;
  ours_ = false;
}

// A cause that the process sent before it ended has been received by now, and takes precedence.
void ProcessGroup::Impl::lose(int process, State state) {
  peer(process).connection.reset();
  if (closing_ || peer(process).left) return;
  set_failure(
      {.cause = concat(members_.describe(process),
                       state == State::kGarbage ? ": protocol violation"
                                                : " has ended; see its output for the cause")},
      false);
}

void ProcessGroup::Impl::admit(GroupAcceptor::Joiner joiner) {
  if (failure_)
    return acceptor_->reject(std::move(joiner),
                             {.type = Type::kFailure, .payload = encode(*failure_)});
  if (std::string objection = members_.objection_to(joiner.hello); !objection.empty())
    return acceptor_->reject(std::move(joiner),
                             {.type = Type::kRefusal, .payload = std::move(objection)});
  const int process = joiner.hello.process;
  members_.add(process, std::move(joiner.hello.member));
  FrameConnection& connection = peer(process).connection.emplace(std::move(joiner.connection));
  connection.accept_up_to(GroupFrame::kMaxBytes);
  connection.send({.type = Type::kBeat});
  if (!members_.complete()) return;
  complete_ = true;
  send_all({.type = Type::kMembers, .payload = encode(members_.all())});
  changed_.notify_all();
}

void ProcessGroup::Impl::start_notifier() {
  if (!failure_ || ours_ || closing_ || std::exchange(notifying_, true)) return;
  try {
    notifier_ = start_thread([this] {
      const std::lock_guard calls(callback_mutex_);
      notify_now();
    });
  } catch (const ThreadRefused&) {
    notifying_ = false;  // retried in the next iteration
  }
}

void ProcessGroup::Impl::notify_now() {
  Lock lock(mutex_);
  if (!callback_ || !failure_ || ours_) return;
  const GroupFailure failure = *failure_;
  lock.unlock();
  std::exchange(callback_, {})(failure.cause, failure.exit_code);
}

}  // namespace muo
