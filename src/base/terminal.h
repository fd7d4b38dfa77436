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
// "ETA 3m20s": the time for `left` more units at the rate of `done` units in `seconds`; "ETA ?" if
// `done` is 0.
std::string eta_text(double left, double done, double seconds);
// 950, 12.3k, 1.25M, 3.1G
std::string count_text(double count);

// Makes a model's output or a file name safe for a terminal: control characters and invalid UTF-8
// become '?'; newlines and tabs are kept.
std::string printable(std::string_view text);
// Prints printable(text). Errors are left to ferror(out).
void say(std::FILE* out, std::string_view text);

// Shows `what` and the elapsed time on standard error, if that is a terminal, from one second after
// construction until destruction.
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

// Permanent lines with live, changing lines below them. If the output is not an interactive
// terminal (a file, a pipe, TERM=dumb), the live lines are printed every few seconds instead. Lines
// that begin with "warning:" or "step N: warning:" are yellow on a terminal unless NO_COLOR is set
// (no-color.org). Write errors are ignored, because a run must outlive its terminal.
class Terminal {
 public:
  using Clock = std::chrono::steady_clock;
  // fd -1: print nothing. `columns` defaults to the terminal's width; 0: not a terminal.
  explicit Terminal(int fd, std::optional<int> columns = {});

  [[nodiscard]] bool is_live() const { return columns_ > 0; }
  [[nodiscard]] int columns() const { return columns_; }  // when the live text was last written
  [[nodiscard]] bool unicode() const { return unicode_; }
  // Sets the live text of one or more lines: at once if `urgent`, otherwise at a rate suitable for
  // the terminal or the log.
  void progress(std::string_view text, bool urgent, Clock::time_point now = Clock::now());
  void lines(std::string_view text);
  void clear();  // erases the live text
  void close();  // ends the live text and leaves it visible

 private:
  void write(std::string_view text) const;
  [[nodiscard]] std::string erased() const;  // the sequence that erases the live text

  int fd_;
  bool follows_width_;  // columns_ follows the terminal's width
  int columns_;
  bool unicode_;
  std::string live_;  // shown now, with the cursor at its end
  std::optional<Clock::time_point> shown_;
};

}  // namespace muo
