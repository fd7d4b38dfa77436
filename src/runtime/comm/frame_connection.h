#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "runtime/comm/group_frame.h"
#include "runtime/comm/handshake.h"

namespace muo {

// Sends and receives frames over a socket that does not block: no call waits for the other side.
// Frames are sent and received once both sides have proved that they know the secret. One thread at
// a time.
class FrameConnection {
 public:
  enum class State : std::uint8_t { kOpen, kEnded, kGarbage };

  FrameConnection(FileDescriptor socket, Handshake handshake,
                  std::size_t most = GroupFrame::kMostBytes);

  [[nodiscard]] int number() const { return socket_.number(); }
  void accept_up_to(std::size_t most);

  // What the socket does not take now is sent by flush(), once the socket can be written.
  void send(const GroupFrame& frame);
  void flush();
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }
  // Nothing more will be sent: when all is, the other side learns that. Then wait for it to end the
  // connection: to close a socket may take back what was sent and has not been read.
  void finish();

  // Appends the frames that have come. What came before the end comes before it here. kGarbage: the
  // other side does not know the secret, or has sent what is no frame.
  State receive(std::vector<GroupFrame>& frames);

 private:
  struct Proven {
    FrameSeal seal;
    FrameReader reader;
  };
  void send_bytes(std::string bytes);
  // False: they are garbage.
  [[nodiscard]] bool take(std::string_view bytes, std::vector<GroupFrame>& frames);

  FileDescriptor socket_;
  Handshake handshake_;
  std::size_t most_;
  std::optional<Proven> proven_;
  std::vector<GroupFrame> early_;  // to be sent once it is proven
  std::deque<std::string> unsent_;
  std::size_t sent_ = 0;  // of the first
  bool finished_ = false, shut_ = false;
};

}  // namespace muo
