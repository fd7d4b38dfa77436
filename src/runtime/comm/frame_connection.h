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

// Sends and receives frames over a non-blocking socket: no call waits for the peer. Frames are sent
// and received once both sides have proved that they know the secret. One thread at a time.
class FrameConnection {
 public:
  enum class State : std::uint8_t { kOpen, kEnded, kGarbage };

  FrameConnection(FileDescriptor socket, Handshake handshake,
                  std::size_t max_bytes = GroupFrame::kMaxBytes);

  [[nodiscard]] int number() const { return socket_.number(); }
  void accept_up_to(std::size_t max_bytes);

  // Queues what the socket cannot take now; flush() sends it once the socket is writable.
  void send(const GroupFrame& frame);
  void flush();
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }
  // Ends this side's stream once all frames are sent; none may follow. Then wait until the peer
  // ends the connection: closing a socket may discard sent data that the peer has not read.
  void finish();

  // Appends the frames received, including those that came before the end of the connection.
  // kGarbage: the peer does not know the secret, or violates the frame format.
  State receive(std::vector<GroupFrame>& frames);

 private:
  struct Proven {
    FrameSeal seal;
    FrameReader reader;
  };
  void send_bytes(std::string bytes);
  // False if the bytes are garbage.
  [[nodiscard]] bool take(std::string_view bytes, std::vector<GroupFrame>& frames);

  FileDescriptor socket_;
  Handshake handshake_;
  std::size_t max_bytes_;
  std::optional<Proven> proven_;
  std::vector<GroupFrame> early_;  // sent once the handshake is done
  std::deque<std::string> unsent_;
  std::size_t sent_ = 0;  // bytes of unsent_.front()
  bool finished_ = false, shut_ = false;
};

}  // namespace muo
