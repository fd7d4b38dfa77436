#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace muo {

// 59s, 3m20s, 2h05m, 3d04h
std::string duration_text(double seconds);
// "ETA 3m20s": the time for `left` units at the rate of `done` units in `seconds`; "ETA ?" if none
// is done.
std::string eta_text(double left, double done, double seconds);
// 950, 12.3k, 1.25M, 3.1G
std::string count_text(double count);

// Text of a model, or of a file name, without what would confuse a terminal: control characters
// and broken UTF-8 become '?' (new lines and tabs stay).
std::string printable(std::string_view text);
// Prints printable(text). Whether it could be written, ferror() knows.
void say(std::FILE* out, std::string_view text);

// In its scope, from a second on, standard error shows what is done and for how long, if it is a
// terminal.
class Waiting {
 public:
  explicit Waiting(const char* what);

 private:
  std::jthread thread_;
};
template <class Task>
auto waiting(const char* what, const Task& task) {
  const Waiting shown(what);
  return task();
}

// Lines, and live ones below them, which change. Where nobody watches (a file, a pipe, TERM=dumb)
// the live ones are printed every few seconds instead. Lines that begin with "warning:", or "step
// N: warning:", are yellow on a terminal, unless NO_COLOR is set (no-color.org). Write errors are
// ignored: a run outlives its window.
class Terminal {
 public:
  using Clock = std::chrono::steady_clock;
  // fd -1: silent. Without `columns`: what the terminal says; 0: not a terminal.
  explicit Terminal(int fd, std::optional<int> columns = {});

  [[nodiscard]] bool is_live() const { return columns_ > 0; }
  [[nodiscard]] int columns() const { return columns_; }  // as of the last live text
  [[nodiscard]] bool unicode() const { return unicode_; }
  // The live text: a line, or several. `urgent`: at once; otherwise as often as eyes, or a log, can
  // bear.
  void progress(std::string_view text, bool urgent, Clock::time_point now = Clock::now());
  void lines(std::string_view text);
  void clear();  // takes the live text away
  void close();  // leaves it standing

 private:
  void write(std::string_view text) const;
  [[nodiscard]] std::string erased() const;  // what takes the live text away

  int fd_;
  bool follows_;  // the terminal's width
  int columns_;
  bool unicode_;
  std::string live_;  // shown now, the cursor at its end
  std::optional<Clock::time_point> shown_;
};

}  // namespace muo
