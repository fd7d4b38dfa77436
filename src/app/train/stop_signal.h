#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace muo::app {

// In its scope the first SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 or SIGXCPU is a number that a
// run looks at between two steps, saves and ends. A SIGINT or SIGTERM that comes a second later, or
// more, ends the program at once; a sooner one belongs to the first, as launchers signal a process
// and then its group. More of the others do nothing: when a terminal closes, kernel and shell each
// send SIGHUP, and the kernel repeats SIGXCPU every second. A program that was started to ignore
// one of these (nohup) still does. Nor does it end when who reads its output leaves. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  [[nodiscard]] const std::atomic<int>& number() const;  // 0: none has come
};

// For the thread that takes signals (take_signals_on_own_thread), after each.
void tell_of_stop();

// What a run that is asked to stop says: it keeps "a checkpoint of each trial".
std::string stop_note(int signal, std::string_view kept);

// In its scope the first signal is told to `task`, by tell_of_stop(). One at a time.
class OnStop {
 public:
  explicit OnStop(std::function<void(int signal)> task);
  ~OnStop();
  OnStop(const OnStop&) = delete;
  OnStop& operator=(const OnStop&) = delete;
};

}  // namespace muo::app
