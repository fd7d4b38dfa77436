#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace muo::trainer {

// While this object exists, the first SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 or SIGXCPU only
// sets number(), which a run reads between two steps in order to save and end. A SIGINT or SIGTERM
// at least one second later terminates the program at once; an earlier one counts as part of the
// first request, because launchers signal a process and then its group. Repetitions of the other
// signals are ignored: when a terminal closes, the kernel and the shell each send SIGHUP, and the
// kernel repeats SIGXCPU every second. Signals that the program was started to ignore (nohup) stay
// ignored. SIGPIPE is ignored too, so that a run outlives the reader of its output. At most one
// instance may exist at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  [[nodiscard]] const std::atomic<int>& number() const;  // 0: no signal was received
};

// Called by the signal thread (take_signals_on_own_thread) after each signal.
void notify_stop();

// The message of a run that stops because of a signal and keeps `kept`, such as "a checkpoint of
// each trial".
std::string stop_note(int signal, std::string_view kept);

// While this object exists, notify_stop() calls `task` with the first signal. At most one instance
// may exist at a time.
class OnStop {
 public:
  explicit OnStop(std::function<void(int signal)> task);
  ~OnStop();
  OnStop(const OnStop&) = delete;
  OnStop& operator=(const OnStop&) = delete;
};

}  // namespace muo::trainer
