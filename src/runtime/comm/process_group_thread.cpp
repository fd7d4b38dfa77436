// The thread of a ProcessGroup: all that comes over its sockets, beats, silence, and the end.
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

// At the end: for what is unsent, and until the other side has seen that it was all.
constexpr milliseconds kToPart(2000), kPartingPeriod(20);

}  // namespace

void ProcessGroup::Impl::work() {
  RunningTime time(period_);
  std::vector<pollfd> sockets;
  Lock lock(mutex_);
  while (!is_done()) {
    list_sockets(sockets);
    const Duration sleep = closing_ ? std::min<Duration>(period_, kPartingPeriod) : period_;
    lock.unlock();
    static_cast<void>(::poll(sockets.data(), sockets.size(),
                             static_cast<int>(std::chrono::ceil<milliseconds>(sleep).count())));
    std::uint64_t wakes = 0;
    static_cast<void>(!::read(wake_.number(), &wakes, sizeof(wakes)));
    lock.lock();
    serve(sockets, time.lap());
    start_to_tell();
  }
}

bool ProcessGroup::Impl::is_done() const {
  const auto is_waited_for = [&](const Peer& peer) {
    return peer.connection && peer.silence <= options_.silence;
  };
  return closing_ && (parting_ >= kToPart || std::ranges::none_of(peers_, is_waited_for));
}

// Those of the peers come first, in their order.
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
  if (reception_ && !closing_)
    for (const int number : reception_->descriptors())
      sockets.push_back({.fd = number, .events = POLLIN, .revents = 0});
}

void ProcessGroup::Impl::serve(const std::vector<pollfd>& sockets, Duration elapsed) {
  since_beat_ += elapsed;
  if (closing_) parting_ += elapsed;
  const bool beats = !closing_ && !left_ && since_beat_ >= options_.beat;
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
    // Judged after what has come while this process was stopped.
    if (other.silence > options_.silence && !other.left)
      set_failure({.cause = concat("no sign of life from ", members_.describe(process), " for ",
                                   seconds_text(options_.silence),
                                   ": it hangs, or its host or the network is down")},
                  false);
  }
  if (left_) reception_.reset();
  if (!reception_ || closing_) return;
  for (GroupReception::Comer& comer : reception_->receive(elapsed))
    admit(std::move(comer));
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

// False: process `process` cannot have sent this.
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
    case Type::kMeeting:
      return queue(process, std::move(frame));
    case Type::kFailure: {
      const auto failure = decode_failure(frame.payload);
      if (!failure) return false;
      hear(*failure);
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

// Who calls waits for the others before long, so more than this does not come.
bool ProcessGroup::Impl::queue(int process, GroupFrame frame) {
  constexpr std::size_t kMaxParts = 1024, kMaxBytes = 2 * GroupFrame::kMostBytes;
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

void ProcessGroup::Impl::hear(const GroupFailure& failure) {
  if (is_first()) return set_failure(failure, false);
  if (failure_ == failure) return;  // this process' own, which process 0 has passed on
  failure_ = failure;
  ours_ = false;
}

// A cause that the process has sent before it ended has been heard by now, and comes first.
void ProcessGroup::Impl::lose(int process, State state) {
  peer(process).connection.reset();
  if (closing_ || peer(process).left) return;
  set_failure(
      {.cause = concat(members_.describe(process),
                       state == State::kGarbage ? ": protocol violation"
                                                : " has ended; what it has written may say why")},
      false);
}

void ProcessGroup::Impl::admit(GroupReception::Comer comer) {
  if (failure_)
    return reception_->turn_away(std::move(comer),
                                 {.type = Type::kFailure, .payload = encode(*failure_)});
  if (std::string objection = members_.objection_to(comer.hello); !objection.empty())
    return reception_->turn_away(std::move(comer),
                                 {.type = Type::kRefusal, .payload = std::move(objection)});
  const int process = comer.hello.process;
  members_.add(process, std::move(comer.hello.member));
  FrameConnection& connection = peer(process).connection.emplace(std::move(comer.connection));
  connection.accept_up_to(GroupFrame::kMostBytes);
  connection.send({.type = Type::kBeat});
  if (!members_.complete()) return;
  complete_ = true;
  send_all({.type = Type::kMembers, .payload = encode(members_.all())});
  changed_.notify_all();
}

void ProcessGroup::Impl::start_to_tell() {
  if (!failure_ || ours_ || closing_ || std::exchange(telling_, true)) return;
  try {
    teller_ = start_thread([this] {
      const std::lock_guard calls(told_mutex_);
      tell_now();
    });
  } catch (const ThreadRefused&) {
    telling_ = false;  // the next turn tries again
  }
}

void ProcessGroup::Impl::tell_now() {
  Lock lock(mutex_);
  if (!told_ || !failure_ || ours_) return;
  const GroupFailure failure = *failure_;
  lock.unlock();
  std::exchange(told_, {})(failure.cause, failure.exit_code);
}

}  // namespace muo
