#include "base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace muo {
namespace {

// Describes the standard descriptors after closing those in `closed` and calling
// open_standard_streams().
std::string opened(std::initializer_list<int> closed) {
  for (const int descriptor : closed)
    ::close(descriptor);
  open_standard_streams();
  const int next = ::open("/dev/zero", O_RDONLY);
  std::string out;
  for (const int descriptor : {0, 1, 2, next})
    out +=
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string() + ' ';
  return out;
}

int kept(std::initializer_list<int> closed) {
  const std::string all = opened(closed);
  int null = 0;
  for (std::size_t at = all.find("/dev/null "); at != std::string::npos;
       at = all.find("/dev/null ", at + 1))
    ++null;
  return all.ends_with(" /dev/zero ") ? null : -1;
}

// Each case runs in a process of its own, whose standard input may already be /dev/null.
TEST(StandardStreamsDeathTest, ClosedDescriptorsAreOpened) {
  const int before = kept({});
  EXPECT_GE(before, 0);
  EXPECT_EXIT(::_exit(kept({0, 1, 2})), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(::_exit(kept({1})), testing::ExitedWithCode(before + 1), "");
}

}  // namespace
}  // namespace muo
