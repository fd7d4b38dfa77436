#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "runtime/comm/frame_connection.h"
#include "runtime/comm/group_frame.h"
#include "runtime/comm/process_group.h"
#include "runtime/comm/tcp_socket.h"

namespace muo {

// Accepts joining processes in process 0. No connection can block the others, and one that has not
// proved knowledge of the secret gets only a few bytes of buffer.
class GroupAcceptor {
 public:
  using Duration = std::chrono::steady_clock::duration;
  struct Joiner {
    GroupHello hello;
    FrameConnection connection;
  };

  // Rejects a connection that has sent no hello within `handshake_timeout`.
  GroupAcceptor(ListeningSockets listening, std::string secret, Duration handshake_timeout)
      : listening_(std::move(listening)),
        secret_(std::move(secret)),
        handshake_timeout_(handshake_timeout) {}

  // File descriptors to poll for joining processes.
  [[nodiscard]] std::vector<int> descriptors() const;
  // Processes that have joined and know the secret. Call it often; `elapsed`: time since the last
  // call.
  std::vector<Joiner> receive(Duration elapsed);
  // Sends `answer`, and nothing else, to a process that is not accepted.
  void reject(Joiner joiner, const GroupFrame& answer);

  [[nodiscard]] const ListeningSockets& listening() const { return listening_; }
  [[nodiscard]] int rejected() const { return rejected_; }  // connections without a valid proof

 private:
  struct PendingConnection {
    FrameConnection connection;
    Duration age{0};
    bool refused = false;  // kept only until the peer has read the answer
  };
  void accept_all();

  const ListeningSockets listening_;
  const std::string secret_;
  const Duration handshake_timeout_;
  std::list<PendingConnection> pending_;  // the oldest first
  bool out_of_sockets_ = false;
  int rejected_ = 0;
};

struct JoinedGroup {
  FrameConnection connection;      // to process 0
  std::vector<GroupFrame> frames;  // received already
};
// Connects to process 0, with as many attempts as necessary, and asks for the secret each time.
// Throws Error after `timeout`; InputError if process 0 refuses, or if there was no secret until
// then.
JoinedGroup join_group(const std::string& name, int port, const GroupHello& hello,
                       const LaunchSecret& secret, std::chrono::milliseconds timeout);

// "60 s"
std::string seconds_text(std::chrono::milliseconds time);

}  // namespace muo
