#include "base/terminal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "base/file_descriptor.h"
#include "support/files.h"

namespace muo {
namespace {

using namespace std::chrono_literals;

// A Terminal whose output is a file.
class TerminalTest : public testing::Test {
 protected:
  TerminalTest() : fd_(open((directory_.path() / "out").c_str(), O_RDWR | O_CREAT, 0600)) {}
  [[nodiscard]] std::string written() const { return test::read_file(directory_.path() / "out"); }
  [[nodiscard]] int fd() const { return fd_.number(); }

 private:
  test::TemporaryDirectory directory_;
  FileDescriptor fd_;
};

using TerminalLive = TerminalTest;
using TerminalLog = TerminalTest;
constexpr Terminal::Clock::time_point kStart{};

TEST_F(TerminalLive, OverwritesItsLineAndKeepsOthersWhole) {
  Terminal terminal(fd(), 80);
  terminal.progress("one", false, kStart);
  terminal.progress("two", false, kStart + 1s);
  terminal.lines("note");
  terminal.progress("three", false, kStart + 2s);
  terminal.close();
  EXPECT_EQ(written(), "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Knote\ntwo\r\x1b[Kthree\n");
}

TEST_F(TerminalLive, NeverFillsTheWidth) {
  Terminal terminal(fd(), 6);
  terminal.progress("123456789", false, kStart);
  EXPECT_EQ(written(), "\r\x1b[K12345");
}

TEST_F(TerminalLive, IsNotRedrawnTooOften) {
  Terminal terminal(fd(), 80);
  terminal.progress("a", false, kStart);
  terminal.progress("b", false, kStart + 50ms);
  terminal.progress("c", false, kStart + 100ms);
  terminal.progress("d", true, kStart + 101ms);
  EXPECT_EQ(written(), "\r\x1b[Ka\r\x1b[Kc\r\x1b[Kd");
}

TEST_F(TerminalLog, HasPlainLinesAtIntervals) {
  Terminal terminal(fd(), 0);
  terminal.progress("a", false, kStart);
  terminal.progress("b", false, kStart + 9s);
  terminal.lines("note\n");
  terminal.progress("c", false, kStart + 10s);
  terminal.progress("last", true, kStart + 11s);
  terminal.close();
  EXPECT_EQ(written(), "a\nnote\nc\nlast\n");
}

// The master end of a pseudo-terminal with a given number of columns; `device` is its other end.
class PseudoTerminal {
 public:
  explicit PseudoTerminal(unsigned short columns) {
    if (openpty(&master_, &device, nullptr, nullptr, nullptr) == 0) resize(columns);
  }
  ~PseudoTerminal() {
    close(master_);
    close(device);
  }
  // A container may have no pseudo-terminals, if nothing is mounted at /dev/pts.
  [[nodiscard]] bool missing() const { return device < 0; }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;
  void resize(unsigned short columns) const {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(master_, TIOCSWINSZ, &size);
  }
  [[nodiscard]] std::string read() const {
    std::string text(4096, ' ');
    const ssize_t count = ::read(master_, text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
    return text;
  }

  int device = -1;

 private:
  int master_ = -1;
};

// NOLINTBEGIN(concurrency-mt-unsafe): no other thread
TEST(Terminal, FollowsTheWidthOfItsWindow) {
  setenv("TERM", "xterm", 1);
  const PseudoTerminal window(20);
  if (window.missing()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  Terminal terminal(window.device);
  ASSERT_TRUE(terminal.is_live());
  terminal.progress("0123456789abcdef", true);
  EXPECT_EQ(window.read(), "\r\x1b[K0123456789abcdef");
  window.resize(9);
  terminal.progress("0123456789abcdef", true);
  EXPECT_EQ(window.read(), "\r\x1b[K01234567");
  EXPECT_EQ(terminal.columns(), 9);
}

TEST(Terminal, OfSizeZeroUnderMpirunIsNotLive) {
  setenv("TERM", "xterm", 1);
  const PseudoTerminal window(0);
  if (window.missing()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  EXPECT_TRUE(Terminal(window.device).is_live());
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_FALSE(Terminal(window.device).is_live());
  window.resize(80);
  EXPECT_TRUE(Terminal(window.device).is_live());
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

TEST(Terminal, WarningsAreYellowUnlessColoursAreDisabled) {
  setenv("TERM", "xterm", 1);
  const PseudoTerminal window(80);
  if (window.missing()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  Terminal terminal(window.device);
  terminal.lines("warning: careful");
  EXPECT_EQ(window.read(), "\x1b[33mwarning: careful\x1b[0m\r\n");
  terminal.lines("step 3: warning: careful");
  EXPECT_EQ(window.read(), "\x1b[33mstep 3: warning: careful\x1b[0m\r\n");
  terminal.lines("step 3: no warning: careful");
  EXPECT_EQ(window.read(), "step 3: no warning: careful\r\n");
  setenv("NO_COLOR", "1", 1);
  terminal.lines("warning: careful");
  EXPECT_EQ(window.read(), "warning: careful\r\n");
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(Terminal(window.device).is_live());
}
// NOLINTEND(concurrency-mt-unsafe)

TEST(Terminal, IsIgnoredOnceItIsGone) {
  Terminal terminal(-1);
  EXPECT_NO_THROW(terminal.lines("x"));
  const int closed = open("/dev/full", O_WRONLY);
  Terminal full(closed, 0);
  EXPECT_NO_THROW(full.progress("x", true));
  close(closed);
}

TEST(DurationText, UsesTwoUnits) {
  EXPECT_EQ(duration_text(0.4), "0s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(3599), "59m59s");
  EXPECT_EQ(duration_text(7500), "2h05m");
  EXPECT_EQ(duration_text(86400 * 3 + 3600 * 4), "3d04h");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
}

TEST(EtaText, AssumesTheRateSoFar) {
  EXPECT_EQ(eta_text(30, 10, 20), "ETA 1m00s");
  EXPECT_EQ(eta_text(0, 10, 20), "ETA 0s");
  EXPECT_EQ(eta_text(30, 0, 20), "ETA ?");
}

TEST(CountText, HasThreeDigits) {
  EXPECT_EQ(count_text(950), "950");
  EXPECT_EQ(count_text(999.6), "1.00k");
  EXPECT_EQ(count_text(1234), "1.23k");
  EXPECT_EQ(count_text(12345), "12.3k");
  EXPECT_EQ(count_text(999499), "999k");
  EXPECT_EQ(count_text(999600), "1.00M");
  EXPECT_EQ(count_text(3.1e9), "3.10G");
  EXPECT_EQ(count_text(std::nan("")), "?");
}

TEST(Printable, KeepsTextAndReplacesTheRest) {
  EXPECT_EQ(printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(printable("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(printable("x\x1b[2Jy\r\x7F"), "x?[2Jy??");
  EXPECT_EQ(printable("\xC3"), "?");            // incomplete
  EXPECT_EQ(printable("\x80\xC0\xAF"), "???");  // stray, overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), "???");  // surrogate
  EXPECT_EQ(printable("\xC2\x9Bm"), "??m");     // a C1 control sequence introducer
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "????");
}

}  // namespace
}  // namespace muo
