#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace muo {

// 32 random bytes as hexadecimal digits.
std::string new_secret();

// Authenticates the frames of one direction of a connection by HMAC-SHA256 over the frame's number
// and bytes: no frame can be forged, changed, dropped, repeated or reflected.
class FrameSeal {
 public:
  static constexpr std::size_t kBytes = 32;

  explicit FrameSeal(std::string key) : key_(std::move(key)) {}
  // The seal of the next frame.
  [[nodiscard]] std::string seal(std::string_view frame);
  // True if this is the seal of the next frame.
  [[nodiscard]] bool accepts(std::string_view frame, std::string_view seal);

 private:
  std::string key_;
  std::uint64_t frames_ = 0;
};

// Mutual authentication of the two ends of a connection: each proves that it knows the launch's
// secret. Nothing else is exchanged before:
//   joining process   8 bytes of protocol name, 32 random bytes
//   process 0         32 random bytes
//   joining process   HMAC-SHA256(secret, "process joins" and the bytes of both so far)
//   process 0         HMAC-SHA256(secret, "process 0 accepts" and the same bytes)
// The keys of the frames that follow are derived likewise, one for each direction. So an attacker
// who records, repeats or relays messages cannot add any. The handshake is the same in all
// versions; the first frame carries the version. Nothing is encrypted.
class Handshake {
 public:
  enum class Side : std::uint8_t { kJoining, kAccepting };
  enum class State : std::uint8_t { kWaiting, kProven, kRefused };
  static constexpr std::size_t kNameBytes = 8, kNonceBytes = 32, kProofBytes = 32;

  Handshake(Side side, std::string secret);

  // Bytes to send before any are received.
  [[nodiscard]] std::string greeting() const;
  // Takes received bytes and returns the bytes to send in response.
  [[nodiscard]] std::string receive(std::string_view bytes);
  [[nodiscard]] State state() const { return state_; }

  // Seals of a connection; they require state() == kProven.
  [[nodiscard]] FrameSeal outgoing() const;
  [[nodiscard]] FrameSeal incoming() const;

 private:
  [[nodiscard]] std::string derive(std::string_view purpose) const;
  [[nodiscard]] std::string answer(std::string_view message);

  Side side_;
  std::string secret_, nonce_;
  std::string transcript_;  // the joining process' greeting, then process 0's nonce
  std::string received_;    // part of the next message
  std::size_t expected_;    // size of the next message
  State state_ = State::kWaiting;
};

}  // namespace muo
