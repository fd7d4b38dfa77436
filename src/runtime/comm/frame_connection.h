#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "runtime/comm/group_frame.h"

namespace muo {

// Sends and receives frames over a socket that does not block: no call waits for the other side.
// One thread at a time.
class FrameConnection {
 public:
  enum class State : std::uint8_t { kOpen, kEnded, kGarbage };

  explicit FrameConnection(FileDescriptor socket, std::size_t most = GroupFrame::kMostBytes)
      : socket_(std::move(socket)), reader_(most) {}

  [[nodiscard]] int number() const { return socket_.number(); }
  void accept_up_to(std::size_t most) { reader_.accept_up_to(most); }

  // What the socket does not take now is sent by flush(), once the socket can be written.
  void send(const GroupFrame& frame) { send_wire(to_wire(frame)); }
  void send_wire(std::string wire);
  void flush();
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }
  // Nothing more will be sent: when all is, the other side learns that. Then wait for it to end the
  // connection: to close a socket may take back what was sent and has not been read.
  void finish();

  // Appends the frames that have come. What came before the end comes before it here.
  State receive(std::vector<GroupFrame>& frames);

 private:
  FileDescriptor socket_;
  FrameReader reader_;
  std::deque<std::string> unsent_;
  std::size_t sent_ = 0;  // of the first
  bool finished_ = false, shut_ = false;
};

}  // namespace muo
