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
#include "base/threads.h"
#include "base/utf8.h"

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

// The first of these variables that is set decides, as in the C library.
bool locale_is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const std::string_view value = environment(name); !value.empty())
      return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos;
  return false;
}

int columns_of(int fd) {
  if (fd < 0 || isatty(fd) == 0 || environment("TERM") == "dumb") return 0;
  winsize size{};
  // mpirun gives its processes a terminal of size 0, even if its output goes to a file.
  const bool by_mpirun = !environment("OMPI_COMM_WORLD_SIZE").empty();
  if (by_mpirun && (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)) return 0;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// The first `columns` characters of UTF-8 text, assuming one column per character.
std::string_view first_columns(std::string_view text, int columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if (!continues_utf8(text[end]) && columns-- == 0) break;
  return text.substr(0, end);
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) return "?";
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string eta_text(double left, double done, double seconds) {
  return "ETA " + (done > 0 ? duration_text(left * seconds / done) : "?");
}

std::string count_text(double count) {
  if (!std::isfinite(count)) return "?";
  constexpr std::array kUnits = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  // Counts from 999.5 on would round to four digits.
  while (std::abs(count) >= 999.5 && unit + 1 < kUnits.size()) {
    count /= 1000;
    ++unit;
  }
  const double size = std::abs(count);
  if (unit == 0 && count == std::floor(count)) return fmt::format("{:.0f}", count);
  return fmt::format("{:.{}f}{}", count, size < 9.995 ? 2 : size < 99.95 ? 1 : 0, kUnits.at(unit));
}

std::string printable(std::string_view text) {
  std::string out(text);
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t bad = at + utf8_prefix(text.substr(at));
    for (; at < bad; ++at) {
      if ((byte(at) < 0x20 && text[at] != '\n' && text[at] != '\t') || byte(at) == 0x7F)
        out[at] = '?';
      // Terminals also interpret U+0080 to U+009F as control characters.
      if (byte(at) == 0xC2 && byte(at + 1) < 0xA0) out[at] = out[at + 1] = '?';
    }
    if (bad < text.size()) out[bad] = '?';
  }
  return out;
}

void say(std::FILE* out, std::string_view text) {
  static_cast<void>(std::fputs(printable(text).c_str(), out));
}

Waiting::Waiting(const char* what) {
  if (columns_of(STDERR_FILENO) == 0) return;
  thread_ = start_thread<std::jthread>([what](const std::stop_token& ends) {
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
      follows_width_(!columns),
      columns_(columns.value_or(columns_of(fd))),
      unicode_(locale_is_utf8()) {}

void Terminal::progress(std::string_view text, bool urgent, Clock::time_point now) {
  const bool live = columns_ > 0;
  const auto pause = live ? Clock::duration(kLivePause) : Clock::duration(kLogPause);
  if (!urgent && shown_ && now - *shown_ < pause) return;
  shown_ = now;
  if (live) {
    if (follows_width_) columns_ = std::max(2, columns_of(fd_));
    std::string cut;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      // Leaves one column free: a full line would wrap, and erasing would then miss a line.
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
