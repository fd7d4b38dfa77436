#include "runtime/comm/group_handshake.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/system_error_text.h"

namespace muo {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxHelloBytes = 4096, kMaxPending = 64;
constexpr std::chrono::seconds kConnectTimeout{5}, kAnswerTimeout{1};
constexpr milliseconds kRetryInterval{50};

milliseconds until(Clock::time_point end) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - Clock::now()));
}

// One attempt to join. None on failure, with the reason in `why`.
std::optional<JoinedGroup> greet(FileDescriptor socket, const GroupHello& hello,
                                 const std::string& secret, Clock::time_point end,
                                 std::string& why) {
  end = std::max(end, Clock::now() + kAnswerTimeout);
  JoinedGroup joined{.connection = FrameConnection(std::move(socket),
                                                   Handshake(Handshake::Side::kJoining, secret)),
                     .frames = {}};
  joined.connection.send({.type = GroupFrame::Type::kHello, .payload = encode(hello)});
  for (;;) {
    pollfd wanted = {.fd = joined.connection.number(), .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, static_cast<int>(until(end).count())) == 0) {
      why = "the program that listens there does not answer";
      return std::nullopt;
    }
    const FrameConnection::State state = joined.connection.receive(joined.frames);
    if (!joined.frames.empty()) break;
    if (state == FrameConnection::State::kOpen) continue;
    why =
        "the program that listens there is not process 0 of this launch: another run, another "
        "program, or MUO_STORE_TOKEN differs";
    return std::nullopt;
  }
  const GroupFrame& answer = joined.frames.front();
  if (answer.type == GroupFrame::Type::kRefusal) throw InputError(answer.payload);
  return joined;
}

}  // namespace

std::vector<int> GroupAcceptor::descriptors() const {
  std::vector<int> numbers;
  if (!out_of_sockets_)
    for (const FileDescriptor& socket : listening_.sockets)
      numbers.push_back(socket.number());
  for (const PendingConnection& pending : pending_)
    numbers.push_back(pending.connection.number());
  return numbers;
}

// A process of this run sends its hello at once. So if too many connections are pending, the oldest
// have had enough time.
void GroupAcceptor::accept_all() {
  out_of_sockets_ = false;
  for (const FileDescriptor& listening : listening_.sockets)
    for (int error = 0; !out_of_sockets_;) {
      FileDescriptor socket = accept_from(listening, error);
      // Stop polling the listening sockets for now: a connection that cannot be accepted would make
      // poll() return at once each time.
      out_of_sockets_ = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
      if (!socket) break;
      pending_.push_back({.connection = FrameConnection(
                              std::move(socket), Handshake(Handshake::Side::kAccepting, secret_),
                              kMaxHelloBytes)});
      if (pending_.size() <= kMaxPending) continue;
      pending_.pop_front();
      ++rejected_;
    }
}

std::vector<GroupAcceptor::Joiner> GroupAcceptor::receive(Duration elapsed) {
  accept_all();
  std::vector<Joiner> joiners;
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    pending->age += elapsed;
    std::vector<GroupFrame> frames;
    const bool open = pending->connection.receive(frames) == FrameConnection::State::kOpen;
    if (pending->refused) frames.clear();
    if (frames.empty() && open && pending->age < handshake_timeout_) {
      ++pending;
      continue;
    }
    std::optional<GroupHello> hello;
    if (frames.size() == 1 && frames.front().type == GroupFrame::Type::kHello)
      hello = decode_hello(frames.front().payload);
    if (hello) {
      joiners.push_back({.hello = std::move(*hello), .connection = std::move(pending->connection)});
    } else if (!pending->refused) {
      ++rejected_;
    }
    pending = pending_.erase(pending);
  }
  return joiners;
}

void GroupAcceptor::reject(Joiner joiner, const GroupFrame& answer) {
  joiner.connection.send(answer);
  joiner.connection.finish();
  pending_.push_back({.connection = std::move(joiner.connection), .refused = true});
}

JoinedGroup join_group(const std::string& name, int port, const GroupHello& hello,
                       const LaunchSecret& secret, milliseconds timeout) {
  const Clock::time_point end = Clock::now() + timeout;
  for (;;) {
    std::string why, key;
    try {
      key = secret();
    } catch (const InputError&) {
      if (until(end) == milliseconds(0)) throw;
      std::this_thread::sleep_for(std::min(until(end), kRetryInterval));
      continue;
    }
    const ResolvedName resolved = resolve_name(name, port);
    if (resolved.addresses.empty()) why = concat("cannot resolve the name (", resolved.error, ")");
    for (const SocketAddress& address : resolved.addresses) {
      int error = 0;
      const milliseconds time = std::min<milliseconds>(until(end), kConnectTimeout);
      FileDescriptor socket = connect_to(address, std::max(time, kRetryInterval), error);
      if (!socket) {
        why =
            concat(system_error_text(error), "; is process 0 running there, and is its port open?");
        continue;
      }
      if (auto joined = greet(std::move(socket), hello, key, end, why)) return std::move(*joined);
    }
    if (until(end) == milliseconds(0))
      throw Error(concat("after ", seconds_text(timeout), " no answer from process 0 at ",
                         endpoint_text(name, port), ": ", why));
    std::this_thread::sleep_for(std::min(until(end), kRetryInterval));
  }
}

std::string seconds_text(milliseconds time) {
  return concat(std::chrono::duration<double>(time).count(), " s");
}

}  // namespace muo
