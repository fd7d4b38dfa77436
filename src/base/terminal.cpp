#include "base/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "base/check.h"

namespace muo {
namespace {

constexpr std::chrono::milliseconds kLivePause{100};
constexpr std::chrono::seconds kLogPause{10};
constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr std::string_view kLineUp = "\x1b[A";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kPlain = "\x1b[0m";

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? std::string_view() : value;
}

bool is_warning(std::string_view text) {
  if (text.starts_with("step ")) text.remove_prefix(std::min(text.find(": "), text.size() - 2) + 2);
  return text.starts_with("warning:");
}

// By the first of these that is set, as C's library has it.
bool locale_is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const std::string_view value = environment(name); !value.empty())
      return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos;
  return false;
}

int columns_of(int fd) {
  if (fd < 0 || isatty(fd) == 0 || environment("TERM") == "dumb") return 0;
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool continues_letter(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

// Of UTF-8 whose letters take one column each.
std::ptrdiff_t columns_in(std::string_view text) {
  return std::ssize(text) - std::ranges::count_if(text, continues_letter);
}

std::string_view first_columns(std::string_view text, int columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if (!continues_letter(text[end]) && columns-- == 0) break;
  return text.substr(0, end);
}

std::string bar_text(double done, int cells, bool unicode) {
  const int full = static_cast<int>(cells * done);
  std::string out = unicode ? "" : "[";
  for (int i = 0; i < cells; ++i)
    out += i < full ? (unicode ? "█" : "#") : (unicode ? "░" : "-");
  return out + (unicode ? "" : "]");
}

// Bytes of the valid UTF-8 sequence that starts `text`; 0: none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xC2 && lead <= 0xDF ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!continues_letter(text[i])) return 0;
  if (length == 1) return 1;
  const unsigned second = byte(1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second >= 0xA0;
  const bool beyond = lead == 0xF4 && second >= 0x90;
  const bool control = lead == 0xC2 && second < 0xA0;  // C1: terminals obey those, too
  return overlong || surrogate || beyond || control ? 0 : length;
}

}  // namespace

std::string progress_text(const Progress& p) {
  const std::string total = std::to_string(p.iterations);
  std::string out = fmt::format("step {:>{}}/{}  loss {:.4f}", p.done, total.size(), total, p.loss);
  if (p.bytes_per_token > 0)
    out += fmt::format("  {:.3f} bits/byte", p.loss / std::log(2.0) / p.bytes_per_token);
  out += fmt::format("  {} tokens/s", count_text(p.tokens_per_s));
  const auto left = static_cast<double>(std::max<std::int64_t>(0, p.iterations - p.done));
  return out + fmt::format("  ETA {}", duration_text(left * p.step_ms / 1000));
}

std::string status_line(const Progress& p, int columns, bool unicode) {
  struct Part {
    int importance;
    std::string text, brief;
  };
  const double done = std::clamp(
      static_cast<double>(p.done) / static_cast<double>(std::max<std::int64_t>(1, p.iterations)),
      0.0, 1.0);
  const std::string steps =
      fmt::format("{:>{}}/{}", p.done, std::to_string(p.iterations).size(), p.iterations);
  const auto left = static_cast<double>(std::max<std::int64_t>(0, p.iterations - p.done));
  const std::string speed = count_text(p.tokens_per_s);
  const bool bits = p.bytes_per_token > 0;
  std::vector<Part> parts = {
      {3, bar_text(done, 12, unicode), bar_text(done, 8, unicode)},
      {7, "step " + steps, steps},
      {bits ? 0 : 5, fmt::format("loss {:.4f}", p.loss), fmt::format("loss {:.3f}", p.loss)}};
  if (bits) {
    const std::string text =
        fmt::format("{:.3f} bits/byte", p.loss / std::log(2.0) / p.bytes_per_token);
    parts.push_back({5, text, text});
  }
  parts.push_back({4, speed + " tokens/s", speed + " tok/s"});
  if (p.mfu)
    parts.push_back(
        {2, fmt::format("MFU {:.0f} %", 100 * *p.mfu), fmt::format("MFU {:.0f}%", 100 * *p.mfu)});
  if (p.memory > 0) {
    const std::string memory = count_text(static_cast<double>(p.memory)) + "B";
    parts.push_back({1, memory, memory});
  }
  const std::string eta = fmt::format("ETA {}", duration_text(left * p.step_ms / 1000));
  parts.push_back({6, eta, eta});
  const auto joined = [&](std::string Part::*form) {
    std::string out;
    for (const Part& part : parts)
      out += (out.empty() ? "" : "  ") + part.*form;
    return out;
  };
  if (std::string all = joined(&Part::text); columns_in(all) < columns) return all;
  for (;;) {
    std::string out = joined(&Part::brief);
    if (parts.size() == 1 || columns_in(out) < columns) return out;
    parts.erase(std::ranges::min_element(parts, {}, &Part::importance));
  }
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) return "?";
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string count_text(double count) {
  if (!std::isfinite(count)) return "?";
  constexpr std::array kUnits = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  // 999.5 and above would round to four digits.
  while (std::abs(count) >= 999.5 && unit + 1 < kUnits.size()) {
    count /= 1000;
    ++unit;
  }
  const double size = std::abs(count);
  if (unit == 0 && count == std::floor(count)) return fmt::format("{:.0f}", count);
  return fmt::format("{:.{}f}{}", count, size < 9.995 ? 2 : size < 99.95 ? 1 : 0, kUnits.at(unit));
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (length == 0 || (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out;
}

Waiting::Waiting(const char* what) {
  if (columns_of(STDERR_FILENO) == 0) return;
  thread_ = std::jthread([what](const std::stop_token& ends) {
    Terminal terminal(STDERR_FILENO);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    for (int seconds = 1;; ++seconds) {
      never.wait_for(lock, ends, std::chrono::seconds(1), [] { return false; });
      if (ends.stop_requested()) return terminal.clear();
      terminal.progress(fmt::format("{} ({})", what, duration_text(seconds)), true);
    }
  });
}

Terminal::Terminal(int fd, std::optional<int> columns)
    : fd_(fd),
      follows_(!columns),
      columns_(columns.value_or(columns_of(fd))),
      unicode_(locale_is_utf8()) {}

void Terminal::progress(std::string_view text, bool urgent, Clock::time_point now) {
  const bool live = columns_ > 0;
  const auto pause = live ? Clock::duration(kLivePause) : Clock::duration(kLogPause);
  if (!urgent && shown_ && now - *shown_ < pause) return;
  shown_ = now;
  if (live) {
    if (follows_) columns_ = std::max(2, columns_of(fd_));
    std::string cut;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      // One column stays free: a full line would wrap, and then not be overwritten.
      cut += (at == 0 ? "" : "\n");
      cut += first_columns(text.substr(at, end - at), columns_ - 1);
      at = end + 1;
    }
    const std::string before = live_.empty() ? std::string(kClearLine) : erased();
    live_ = std::move(cut);
    write(before + live_);
  } else {
    write(fmt::format("{}\n", text));
  }
}

std::string Terminal::erased() const {
  if (live_.empty()) return {};
  std::string out(kClearLine);
  for (auto above = std::ranges::count(live_, '\n'); above > 0; --above)
    out += fmt::format("{}{}", kLineUp, kClearLine);
  return out;
}

void Terminal::lines(std::string_view text) {
  std::string out = printable(text);
  if (is_live() && is_warning(text) && environment("NO_COLOR").empty())
    out = concat(kYellow, out, kPlain);
  if (out.empty() || out.back() != '\n') out += '\n';
  write(erased() + out + live_);
}

void Terminal::clear() {
  write(erased());
  live_.clear();
}

void Terminal::close() {
  if (!live_.empty()) write("\n");
  live_.clear();
}

void Terminal::write(std::string_view text) const {
  if (fd_ < 0) return;
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace muo
