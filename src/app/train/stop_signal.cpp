#include "app/train/stop_signal.h"

#include <csignal>

namespace muo {
namespace {

// The handler runs on any thread while the ranks read: an atomic, and lock-free as handlers need.
std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void request_stop(int signal) {
  stop_signal = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

StopSignal::StopSignal() {
  stop_signal = 0;
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  std::signal(SIGXFSZ, SIG_IGN);
}

StopSignal::~StopSignal() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
}

const std::atomic<int>& StopSignal::number() const { return stop_signal; }

}  // namespace muo
