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

// Where process 0 receives those who come. Nobody who connects keeps it from the others, and of
// those who have not proved that they know the secret it takes no more than a few bytes.
class GroupReception {
 public:
  using Duration = std::chrono::steady_clock::duration;
  struct Comer {
    GroupHello hello;
    FrameConnection connection;
  };

  // Who has not said hello after `to_say_hello` is turned away.
  GroupReception(ListeningSockets listening, std::string secret, Duration to_say_hello)
      : listening_(std::move(listening)), secret_(std::move(secret)), to_say_hello_(to_say_hello) {}

  // What to poll to hear of them.
  [[nodiscard]] std::vector<int> descriptors() const;
  // Those who have come and know the secret; call it often, `elapsed` after the last time.
  std::vector<Comer> receive(Duration elapsed);
  // Of those who are not taken: the answer, and no more.
  void turn_away(Comer comer, const GroupFrame& answer);

  [[nodiscard]] const ListeningSockets& listening() const { return listening_; }
  [[nodiscard]] int turned_away() const { return turned_away_; }  // without a proof

 private:
  struct Stranger {
    FrameConnection connection;
    Duration age{0};
    bool refused = false;  // only waits for the text to be read
  };
  void accept_all();

  const ListeningSockets listening_;
  const std::string secret_;
  const Duration to_say_hello_;
  std::list<Stranger> strangers_;  // the oldest first
  bool out_of_sockets_ = false;
  int turned_away_ = 0;
};

struct JoinedGroup {
  FrameConnection connection;      // to process 0
  std::vector<GroupFrame> frames;  // that have come already
};
// Connects to process 0, as often as it takes, and asks for the secret each time. Throws Error
// after `patience`; InputError if process 0 refuses, or if there was no secret until then.
JoinedGroup join_group(const std::string& name, int port, const GroupHello& hello,
                       const LaunchSecret& secret, std::chrono::milliseconds patience);

// "60 s"
std::string seconds_text(std::chrono::milliseconds time);

}  // namespace muo
