#include "runtime/comm/frame_connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace muo {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;
constexpr int kMostPieces = 64;  // at once, so that other connections have their turn

}  // namespace

void FrameConnection::send_wire(std::string wire) {
  if (finished_) return;
  unsent_.push_back(std::move(wire));
  if (unsent_.size() == 1) flush();
}

void FrameConnection::flush() {
  while (!unsent_.empty()) {
    const std::string_view rest = std::string_view(unsent_.front()).substr(sent_);
    const ssize_t count = ::send(socket_.number(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) {
      unsent_.clear();  // the other side is gone; what it has sent before may still be read
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
  for (int pieces = 0; pieces < kMostPieces && state == State::kOpen; ++pieces) {
    const ssize_t count = ::recv(socket_.number(), piece.data(), piece.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) state = State::kEnded;
    if (count <= 0) break;
    reader_.add({piece.data(), static_cast<std::size_t>(count)});
    while (std::optional<GroupFrame> frame = reader_.next())
      frames.push_back(std::move(*frame));
    if (reader_.failed()) state = State::kGarbage;
    if (static_cast<std::size_t>(count) < piece.size()) break;
  }
  return state;
}

}  // namespace muo
