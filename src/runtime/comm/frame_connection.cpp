#include "runtime/comm/frame_connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace muo {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;
constexpr int kMaxPieces = 64;  // per call, so that no connection starves the others

}  // namespace

FrameConnection::FrameConnection(FileDescriptor socket, Handshake handshake, std::size_t max_bytes)
    : socket_(std::move(socket)), handshake_(std::move(handshake)), max_bytes_(max_bytes) {
  send_bytes(handshake_.greeting());
}

void FrameConnection::accept_up_to(std::size_t max_bytes) {
  max_bytes_ = max_bytes;
  if (proven_) proven_->reader.accept_up_to(max_bytes);
}

void FrameConnection::send(const GroupFrame& frame) {
  if (finished_) return;
  if (proven_)
    send_bytes(to_wire(frame, proven_->seal));
  else
    early_.push_back(frame);
}

void FrameConnection::send_bytes(std::string bytes) {
  if (bytes.empty()) return;
  unsent_.push_back(std::move(bytes));
  if (unsent_.size() == 1) flush();
}

void FrameConnection::flush() {
  while (!unsent_.empty()) {
    const std::string_view rest = std::string_view(unsent_.front()).substr(sent_);
    const ssize_t count = ::send(socket_.number(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) {
      unsent_.clear();  // the peer is gone; what it sent before may still be read
      sent_ = 0;
      break;
    }
    sent_ += static_cast<std::size_t>(count);
    if (sent_ < unsent_.front().size()) continue;
    unsent_.pop_front();
    sent_ = 0;
  }
  if (finished_ && !std::exchange(shut_, true)) ::shutdown(socket_.number(), SHUT_WR);
}

void FrameConnection::finish() {
  finished_ = true;
  flush();
}

FrameConnection::State FrameConnection::receive(std::vector<GroupFrame>& frames) {
  std::array<char, kPiece> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  State state = State::kOpen;
  for (int pieces = 0; pieces < kMaxPieces && state == State::kOpen; ++pieces) {
    const ssize_t count = ::recv(socket_.number(), piece.data(), piece.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) state = State::kEnded;
    if (count <= 0) break;
    if (!take({piece.data(), static_cast<std::size_t>(count)}, frames)) state = State::kGarbage;
    if (static_cast<std::size_t>(count) < piece.size()) break;
  }
  return state;
}

bool FrameConnection::take(std::string_view bytes, std::vector<GroupFrame>& frames) {
  if (proven_) {
    proven_->reader.add(bytes);
    while (std::optional<GroupFrame> frame = proven_->reader.next())
      frames.push_back(std::move(*frame));
    return !proven_->reader.failed();
  }
  send_bytes(handshake_.receive(bytes));
  if (handshake_.state() == Handshake::State::kProven) {
    proven_.emplace(Proven{.seal = handshake_.outgoing(),
                           .reader = FrameReader(handshake_.incoming(), max_bytes_)});
    for (const GroupFrame& frame : std::exchange(early_, {}))
      send(frame);
  }
  return handshake_.state() != Handshake::State::kRefused;
}

}  // namespace muo
