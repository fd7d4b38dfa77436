#include "trainer/train/stop_signal.h"

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <utility>

namespace muo::trainer {
namespace {

// The handler runs on another thread than the ranks that read this, and handlers need lock-free
// atomics.
std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

std::atomic<bool> is_pending = false;
std::mutex mutex;
std::function<void(int)> on_first;

constexpr std::array kOnlySave = {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
std::atomic<std::int64_t> asked_at = 0;  // in ms of the monotonic clock

std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void request_stop(int signal) {
  constexpr std::int64_t kSameRequest = 1000;
  if (stop_signal == 0) {
    asked_at = now_ms();
    stop_signal = signal;
    is_pending = true;
  } else if ((signal == SIGINT || signal == SIGTERM) && now_ms() - asked_at >= kSameRequest) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

StopSignal::StopSignal() {
  stop_signal = 0;
  is_pending = false;
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  for (const int signal : kOnlySave)
    if (std::signal(signal, SIG_IGN) != SIG_IGN) std::signal(signal, request_stop);
  std::signal(SIGPIPE, SIG_IGN);
}

void notify_stop() {
  if (!is_pending.exchange(false)) return;
  const std::lock_guard lock(mutex);
  if (on_first) on_first(stop_signal);
}

// A stopped run is ending, and a late signal must not change how it ends: ignore signals from now
// on.
StopSignal::~StopSignal() {
  const auto now = stop_signal == 0 ? SIG_DFL : SIG_IGN;
  std::signal(SIGINT, now);
  std::signal(SIGTERM, now);
  for (const int signal : kOnlySave)
    if (std::signal(signal, SIG_IGN) != SIG_IGN) std::signal(signal, now);
  std::signal(SIGPIPE, SIG_DFL);
}

const std::atomic<int>& StopSignal::number() const { return stop_signal; }

std::string stop_note(int signal, std::string_view kept) {
  return fmt::format(
      "SIG{}: stopping, with {}; repeat after one second to stop at once, without one",
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

}  // namespace muo::trainer
