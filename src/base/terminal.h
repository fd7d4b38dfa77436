#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace muo {

struct Progress {
  std::int64_t done = 0;        // steps
  std::int64_t iterations = 0;  // of the run
  double loss = 0;              // nats per token
  double bytes_per_token = 0;   // 0: not a text, no bits per byte
  double tokens_per_s = 0;
  double step_ms = 0;              // for the time that is left
  std::optional<double> mfu = {};  // a fraction
  std::int64_t memory = 0;         // bytes; 0: unknown
};
// "step  120/1000  loss 2.3456  3.384 bits/byte  12.3k tokens/s  ETA 3m20s"
std::string progress_text(const Progress& progress);
// The same with a bar, MFU and memory, for a line of so many columns: where they are few it is
// briefer, and then what matters least is left out.
std::string status_line(const Progress& progress, int columns, bool unicode);

// 59s, 3m20s, 2h05m, 3d04h
std::string duration_text(double seconds);
// 950, 12.3k, 1.25M, 3.1G
std::string count_text(double count);

// Text of a model, or of a file name, without what would confuse a terminal: control characters
// and broken UTF-8 become '?' (new lines and tabs stay).
std::string printable(std::string_view text);

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
