#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace muo {
namespace {

// The examples of RFC 3720, B.4, and the check value of the CRC catalogues.
TEST(Crc32c, MatchesTheStandard) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string numbers;
  for (char i = 0; i < 32; ++i)
    numbers += i;
  EXPECT_EQ(crc32c(numbers), 0x46DD794EU);
  std::ranges::reverse(numbers);
  EXPECT_EQ(crc32c(numbers), 0x113FDB5CU);
  const unsigned char read[] = {0x01, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
                                0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};
  EXPECT_EQ(crc32c({reinterpret_cast<const char*>(read), sizeof read}), 0xD9963A56U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

}  // namespace
}  // namespace muo
