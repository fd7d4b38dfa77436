#include "runtime/comm/handshake.h"

#include <sodium.h>

#include <utility>

#include "base/check.h"

namespace muo {
namespace {

constexpr std::string_view kName = "muograph";
static_assert(kName.size() == Handshake::kNameBytes);
static_assert(Handshake::kProofBytes == crypto_auth_hmacsha256_BYTES &&
              FrameSeal::kBytes == crypto_auth_hmacsha256_BYTES);
constexpr std::string_view kJoins = "process joins", kAccepts = "process 0 accepts",
                           kFramesOfJoining = "frames of the joining process",
                           kFramesOfFirst = "frames of process 0";

unsigned char* data_of(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());  // NOLINT: sodium's type of bytes
}
const unsigned char* data_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());  // NOLINT: sodium's type of bytes
}

std::string hmac(std::string_view key, std::string_view first, std::string_view second) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, data_of(key), key.size());
  crypto_auth_hmacsha256_update(&state, data_of(first), first.size());
  crypto_auth_hmacsha256_update(&state, data_of(second), second.size());
  std::string out(crypto_auth_hmacsha256_BYTES, '\0');
  crypto_auth_hmacsha256_final(&state, data_of(out));
  return out;
}

// Constant time: does not depend on where they differ.
bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  MUO_CHECK(sodium_init() >= 0, "libsodium has no source of random bytes");
  std::string out(count, '\0');
  randombytes_buf(out.data(), out.size());
  return out;
}

std::string number_text(std::uint64_t number) {
  std::string out(sizeof(number), '\0');
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<char>(number >> (8 * i));
  return out;
}

}  // namespace

std::string new_secret() {
  constexpr std::size_t kBytes = 32;
  const std::string bytes = random_bytes(kBytes);
  std::string out(2 * kBytes + 1, '\0');  // with a terminating zero
  sodium_bin2hex(out.data(), out.size(), data_of(std::string_view(bytes)), bytes.size());
  out.pop_back();
  return out;
}

std::string FrameSeal::seal(std::string_view frame) {
  return hmac(key_, number_text(frames_++), frame);
}

bool FrameSeal::accepts(std::string_view frame, std::string_view seal) {
  return same(seal, this->seal(frame));
}

Handshake::Handshake(Side side, std::string secret)
    : side_(side),
      secret_(std::move(secret)),
      nonce_(random_bytes(kNonceBytes)),
      expected_(side == Side::kJoining ? kNonceBytes : kNameBytes + kNonceBytes) {
  MUO_CHECK(!secret_.empty(), "a handshake without a secret");
  if (side == Side::kJoining) transcript_ = greeting();
}

std::string Handshake::greeting() const {
  return side_ == Side::kJoining ? concat(kName, nonce_) : std::string();
}

std::string Handshake::derive(std::string_view purpose) const {
  return hmac(secret_, purpose, transcript_);
}

std::string Handshake::receive(std::string_view bytes) {
  if (state_ != State::kWaiting) return {};
  received_ += bytes.substr(0, expected_ + 1);
  // Each side sends its next message only after it has received the other's.
  if (received_.size() > expected_) state_ = State::kRefused;
  if (received_.size() != expected_) return {};
  return answer(std::exchange(received_, {}));
}

std::string Handshake::answer(std::string_view message) {
  const bool joins = side_ == Side::kJoining;
  expected_ = kProofBytes;
  if (transcript_.size() < kNameBytes + 2 * kNonceBytes) {  // `message` is the peer's nonce
    if (!joins && !message.starts_with(kName)) {
      state_ = State::kRefused;
      return {};
    }
    transcript_ += message;
    if (!joins) transcript_ += nonce_;
    return joins ? derive(kJoins) : nonce_;
  }
  state_ = same(message, derive(joins ? kAccepts : kJoins)) ? State::kProven : State::kRefused;
  return joins || state_ == State::kRefused ? std::string() : derive(kAccepts);
}

FrameSeal Handshake::outgoing() const {
  MUO_CHECK(state_ == State::kProven);
  return FrameSeal(derive(side_ == Side::kJoining ? kFramesOfJoining : kFramesOfFirst));
}

FrameSeal Handshake::incoming() const {
  MUO_CHECK(state_ == State::kProven);
  return FrameSeal(derive(side_ == Side::kJoining ? kFramesOfFirst : kFramesOfJoining));
}

}  // namespace muo
