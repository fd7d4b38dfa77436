#include "app/train/stop_signal.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

namespace muo::app {
namespace {

// The handler runs on another thread than the ranks, which read: lock-free, as handlers need.
std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

std::atomic<bool> is_untold = false;
std::mutex mutex;
std::function<void(int)> on_first;

void request_stop(int signal) {
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, signal)) is_untold = true;
  if (signal != SIGHUP) {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
}

}  // namespace

StopSignal::StopSignal() {
  stop_signal = 0;
  is_untold = false;
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, request_stop);
  std::signal(SIGPIPE, SIG_IGN);
}

void tell_of_stop() {
  if (!is_untold.exchange(false)) return;
  const std::lock_guard lock(mutex);
  if (on_first) on_first(stop_signal);
}

// A run that was stopped is at its end, which a late signal must not turn into another.
StopSignal::~StopSignal() {
  const auto now = stop_signal == 0 ? SIG_DFL : SIG_IGN;
  std::signal(SIGINT, now);
  std::signal(SIGTERM, now);
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, now);
  std::signal(SIGPIPE, SIG_DFL);
}

const std::atomic<int>& StopSignal::number() const { return stop_signal; }

std::string stop_note(int signal, std::string_view kept) {
  return fmt::format("SIG{}: stopping, with {}; once more: at once, without one",
                     sigabbrev_np(signal), kept);
}

OnStop::OnStop(std::function<void(int signal)> task) {
  const std::lock_guard lock(mutex);
  on_first = std::move(task);
}

OnStop::~OnStop() {
  const std::lock_guard lock(mutex);
  on_first = {};
}

}  // namespace muo::app
