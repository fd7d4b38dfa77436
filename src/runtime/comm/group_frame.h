#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/handshake.h"

namespace muo {

// Message between two processes of a group.
struct GroupFrame {
  enum class Type : std::uint8_t {
    kHello,    // first frame of a joining process: GroupHello
    kRefusal,  // the joining process is rejected; payload: the reason
    kBeat,     // heartbeat; the first one also accepts the joining process
    kMembers,  // all have joined; payload: the list of members
    kCall,     // one process' part of a collective call
    kFailure,  // GroupFailure
    kBye,
  };
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

  Type type = Type::kBeat;
  std::uint8_t channel = 0;
  std::uint64_t number = 0;  // sequence number of the call on its channel
  std::string site = {}, payload = {};
};

// Wire format: the number of bytes that follow, the fields in declaration order, little-endian, the
// seal.
std::string to_wire(const GroupFrame& frame, FrameSeal& seal);

// Splits a byte stream into frames.
class FrameReader {
 public:
  // Fails at a frame that announces more bytes than the limit, or whose seal is wrong.
  explicit FrameReader(FrameSeal seal, std::size_t max_bytes = GroupFrame::kMaxBytes)
      : seal_(std::move(seal)), max_bytes_(max_bytes) {}
  void accept_up_to(std::size_t max_bytes) { max_bytes_ = max_bytes; }

  void add(std::string_view bytes);
  // None if no frame is complete, or failed().
  [[nodiscard]] std::optional<GroupFrame> next();
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  FrameSeal seal_;
  std::size_t max_bytes_;
  std::string bytes_;
  std::size_t begin_ = 0;  // offset of the next frame
  bool failed_ = false;
};

struct GroupMember {
  std::string host;
  std::int64_t pid = 0;
  int ranks = 1;
};

struct GroupHello {
  bool same_version = true;  // if false, no other field is set
  int process = 0, processes = 1;
  GroupMember member = {};
};

struct GroupFailure {
  std::string cause;
  int exit_code = 3;

  bool operator==(const GroupFailure&) const = default;
};

// Encodings of payloads. Decoding returns none for invalid bytes.
std::string encode(const GroupHello& hello);
std::optional<GroupHello> decode_hello(std::string_view payload);
std::string encode(const std::vector<GroupMember>& members);
std::optional<std::vector<GroupMember>> decode_members(std::string_view payload);
std::string encode(const GroupFailure& failure);
std::optional<GroupFailure> decode_failure(std::string_view payload);

}  // namespace muo
