#include "base/byte_size.h"

#include <gtest/gtest.h>

#include "base/text_table.h"

namespace muo {
namespace {

TEST(ByteSize, ParsesNumbersWithAndWithoutUnits) {
  for (const auto& [text, bytes] : {std::pair<const char*, std::int64_t>{"4096", 4096},
                                    {"1B", 1},
                                    {"2kB", 2000},
                                    {"2KiB", 2048},
                                    {"12GB", 12'000'000'000},
                                    {"900MiB", 900LL << 20},
                                    {"1.5GiB", 3LL << 29},
                                    {"0.5kB", 500},
                                    {"2TiB", 2LL << 40},
                                    {"3TB", 3'000'000'000'000},
                                    {"7MB", 7'000'000},
                                    {"1048576TiB", 1LL << 60}}) {
    const auto size = parse_byte_size(text);
    ASSERT_TRUE(size) << text;
    EXPECT_EQ(size->bytes, bytes) << text;
  }
}

TEST(ByteSize, RejectsInvalidText) {
  for (const char* text : {"", "GB", "12 GB", "12gb", "12G", "-1GB", "+1GB", "0", "0GB", "0.5",
                           "1e9", "12GB ", "nan", "inf", "1048577TiB", "0x10", "12GBB", "1,5GB"})
    EXPECT_FALSE(parse_byte_size(text)) << text;
}

TEST(ByteSize, RoundTrips) {
  for (const char* text : {"12GB", "900MiB", "4097", "3GiB", "1500kB", "2TB"}) {
    const auto size = parse_byte_size(text);
    ASSERT_TRUE(size) << text;
    EXPECT_EQ(to_text(*size), text);
  }
  EXPECT_EQ(to_text({.bytes = 1 << 30}), "1GiB");
  EXPECT_EQ(to_text({.bytes = 1500}), "1500");
}

TEST(SizeText, CountsInPowersOfTwo) {
  EXPECT_EQ(size_text(1'500'000), "1.43 MiB");
  EXPECT_EQ(size_text(10'000'000'000), "9536.74 MiB");
  EXPECT_EQ(size_text(12'000'000'000), "11.18 GiB");
}

}  // namespace
}  // namespace muo
