#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/handshake.h"

namespace muo {

// What processes of a group send each other.
struct GroupFrame {
  enum class Type : std::uint8_t {
    kHello,    // who comes: GroupHello
    kRefusal,  // who has come is not taken; a text says why
    kBeat,     // the first one: who has come is taken
    kMembers,  // all have come: who they are
    kMeeting,  // one's part of a meeting
    kFailure,  // GroupFailure
    kBye,
  };
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

  Type type = Type::kBeat;
  std::uint8_t channel = 0;
  std::uint64_t number = 0;  // of the meeting on its channel
  std::string site = {}, payload = {};
};

// On the wire: the number of bytes that follow, the fields in their order, little-endian, the seal.
std::string to_wire(const GroupFrame& frame, FrameSeal& seal);

// Cuts what comes into frames.
class FrameReader {
 public:
  // A frame that says to have more bytes, or whose seal is wrong, is none.
  explicit FrameReader(FrameSeal seal, std::size_t most = GroupFrame::kMostBytes)
      : seal_(std::move(seal)), most_(most) {}
  void accept_up_to(std::size_t most) { most_ = most; }

  void add(std::string_view bytes);
  // None: it has not come as a whole, or failed().
  [[nodiscard]] std::optional<GroupFrame> next();
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  FrameSeal seal_;
  std::size_t most_;
  std::string bytes_;
  std::size_t begin_ = 0;  // of what is not cut yet
  bool failed_ = false;
};

struct GroupMember {
  std::string host;
  std::int64_t pid = 0;
  int ranks = 1;
};

struct GroupHello {
  bool same_version = true;  // else nothing else is known
  int process = 0, processes = 1;
  GroupMember member = {};
};

struct GroupFailure {
  std::string cause;
  int exit_code = 3;

  bool operator==(const GroupFailure&) const = default;
};

// Payloads. None: these bytes are not one.
std::string encode(const GroupHello& hello);
std::optional<GroupHello> decode_hello(std::string_view payload);
std::string encode(const std::vector<GroupMember>& members);
std::optional<std::vector<GroupMember>> decode_members(std::string_view payload);
std::string encode(const GroupFailure& failure);
std::optional<GroupFailure> decode_failure(std::string_view payload);

}  // namespace muo
