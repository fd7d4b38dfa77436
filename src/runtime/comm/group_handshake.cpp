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

constexpr std::size_t kMostHelloBytes = 4096, kMostStrangers = 64;
constexpr std::chrono::seconds kToConnect{5}, kToAnswer{1};
constexpr milliseconds kToTryAgain{50};

milliseconds until(Clock::time_point end) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - Clock::now()));
}

// One attempt. None: `why` says how it failed.
std::optional<JoinedGroup> greet(FileDescriptor socket, const GroupHello& hello,
                                 const std::string& secret, Clock::time_point end,
                                 std::string& why) {
  end = std::max(end, Clock::now() + kToAnswer);
  JoinedGroup joined{.connection = FrameConnection(std::move(socket),
                                                   Handshake(Handshake::Side::kJoining, secret)),
                     .frames = {}};
  joined.connection.send({.type = GroupFrame::Type::kHello, .payload = encode(hello)});
  for (;;) {
    pollfd wanted = {.fd = joined.connection.number(), .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, static_cast<int>(until(end).count())) == 0) {
      why = "what listens there does not answer";
      return std::nullopt;
    }
    const FrameConnection::State state = joined.connection.receive(joined.frames);
    if (!joined.frames.empty()) break;
    if (state == FrameConnection::State::kOpen) continue;
    why =
        "what listens there is not process 0 of this launch: another run, another program, or "
        "MUO_STORE_TOKEN differs";
    return std::nullopt;
  }
  const GroupFrame& answer = joined.frames.front();
  if (answer.type == GroupFrame::Type::kRefusal) throw InputError(answer.payload);
  return joined;
}

}  // namespace

std::vector<int> GroupReception::descriptors() const {
  std::vector<int> numbers;
  if (!out_of_sockets_)
    for (const FileDescriptor& socket : listening_.sockets)
      numbers.push_back(socket.number());
  for (const Stranger& stranger : strangers_)
    numbers.push_back(stranger.connection.number());
  return numbers;
}

// Who belongs to the run says so at once. So if too many wait, the first have waited long enough.
void GroupReception::accept_all() {
  out_of_sockets_ = false;
  for (const FileDescriptor& listening : listening_.sockets)
    for (int error = 0; !out_of_sockets_;) {
      FileDescriptor socket = accept_from(listening, error);
      // Later: else one who cannot be accepted would keep poll() from ever waiting.
      out_of_sockets_ = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
      if (!socket) break;
      strangers_.push_back({.connection = FrameConnection(
                                std::move(socket), Handshake(Handshake::Side::kAccepting, secret_),
                                kMostHelloBytes)});
      if (strangers_.size() <= kMostStrangers) continue;
      strangers_.pop_front();
      ++turned_away_;
    }
}

std::vector<GroupReception::Comer> GroupReception::receive(Duration elapsed) {
  accept_all();
  std::vector<Comer> comers;
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    stranger->age += elapsed;
    std::vector<GroupFrame> frames;
    const bool open = stranger->connection.receive(frames) == FrameConnection::State::kOpen;
    if (stranger->refused) frames.clear();
    if (frames.empty() && open && stranger->age < to_say_hello_) {
      ++stranger;
      continue;
    }
    std::optional<GroupHello> hello;
    if (frames.size() == 1 && frames.front().type == GroupFrame::Type::kHello)
      hello = decode_hello(frames.front().payload);
    if (hello) {
      comers.push_back({.hello = std::move(*hello), .connection = std::move(stranger->connection)});
    } else if (!stranger->refused) {
      ++turned_away_;
    }
    stranger = strangers_.erase(stranger);
  }
  return comers;
}

void GroupReception::turn_away(Comer comer, const GroupFrame& answer) {
  comer.connection.send(answer);
  comer.connection.finish();
  strangers_.push_back({.connection = std::move(comer.connection), .refused = true});
}

JoinedGroup join_group(const std::string& name, int port, const GroupHello& hello,
                       const LaunchSecret& secret, milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  for (;;) {
    std::string why, key;
    try {
      key = secret();
    } catch (const InputError&) {
      if (until(end) == milliseconds(0)) throw;
      std::this_thread::sleep_for(std::min(until(end), kToTryAgain));
      continue;
    }
    const ResolvedName resolved = resolve_name(name, port);
    if (resolved.addresses.empty())
      why = concat("the name is not known here (", resolved.error, ")");
    for (const SocketAddress& address : resolved.addresses) {
      int error = 0;
      const milliseconds time = std::min<milliseconds>(until(end), kToConnect);
      FileDescriptor socket = connect_to(address, std::max(time, kToTryAgain), error);
      if (!socket) {
        why = concat(system_error_text(error), "; does it run there, and is its port let through?");
        continue;
      }
      if (auto joined = greet(std::move(socket), hello, key, end, why)) return std::move(*joined);
    }
    if (until(end) == milliseconds(0))
      throw Error(concat("after ", seconds_text(patience), " no answer from process 0 at ",
                         endpoint_text(name, port), ": ", why));
    std::this_thread::sleep_for(std::min(until(end), kToTryAgain));
  }
}

std::string seconds_text(milliseconds time) {
  return concat(std::chrono::duration<double>(time).count(), " s");
}

}  // namespace muo
