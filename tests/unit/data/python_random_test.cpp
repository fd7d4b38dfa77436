#include "data/examples/python_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "data/examples/python_strip.h"

namespace muo::data {
namespace {

using testing::ElementsAre;

// The numbers are those of CPython 3.11:
//   r = random.Random(SEED); [r.getrandbits(32) for _ in range(3)]
TEST(PythonRandom, DrawsAsPythonDoes) {
  struct Draws {
    std::uint64_t seed;
    std::array<std::uint32_t, 3> first;
    std::uint32_t last;  // the last of 1000, after the generator has renewed its state
  };
  for (const Draws& want :
       {Draws{0U, {3626764237U, 1654615998U, 3255389356U}, 2971151651U},
        Draws{1337U, {2653228291U, 3975144315U, 2290358181U}, 919286571U},
        Draws{1239U, {320780811U, 1195547972U, 1958294505U}, 290334356U},
        Draws{81985529216486895U, {3851240871U, 1496727489U, 1688815724U}, 1068068003U}}) {
    PythonRandom random(want.seed);
    for (const std::uint32_t word : want.first)
      EXPECT_EQ(random.word(), word) << want.seed;
    for (int i = 3; i < 999; ++i)
      random.word();
    EXPECT_EQ(random.word(), want.last) << want.seed;
  }
}

//   v = list(range(12)); random.Random(1337).shuffle(v)
TEST(PythonRandom, ShufflesAsPythonDoes) {
  std::vector<int> values(12);
  std::iota(values.begin(), values.end(), 0);
  PythonRandom(1337).shuffle(values);
  EXPECT_THAT(values, ElementsAre(6, 0, 1, 4, 10, 7, 3, 11, 2, 5, 8, 9));
}

//   random.Random(SEED).sample(range(N), K)
// Python draws from a list of the remaining elements for N up to 21 if K <= 5, and up to 85 if K is
// 6 to 21; otherwise, it draws until it finds an unused element.
TEST(PythonRandom, SamplesAsPythonDoes) {
  const auto sample = [](std::uint64_t seed, std::size_t n, std::size_t k) {
    return PythonRandom(seed).sample(n, k);
  };
  EXPECT_THAT(sample(1234, 9, 5), ElementsAre(7, 1, 0, 6, 4));
  EXPECT_THAT(sample(1234, 21, 5), ElementsAre(14, 3, 0, 2, 1));
  EXPECT_THAT(sample(1234, 22, 5), ElementsAre(14, 3, 0, 2, 18));
  EXPECT_THAT(sample(1300, 85, 6), ElementsAre(46, 36, 50, 1, 72, 0));
  EXPECT_THAT(sample(1300, 86, 6), ElementsAre(46, 36, 50, 1, 85, 72));
  EXPECT_THAT(sample(99, 85, 21),
              testing::ElementsAreArray({51, 48, 25, 76, 22, 29, 31, 17, 11, 32, 49,
                                         67, 68, 81, 62, 82, 53, 27, 47, 74, 73}));
  EXPECT_THAT(sample(99, 86, 21),
              testing::ElementsAreArray({51, 48, 25, 76, 22, 29, 31, 17, 11, 32, 49,
                                         67, 68, 79, 62, 53, 78, 75, 27, 47, 19}));
  EXPECT_THAT(sample(99, 277, 22),
              testing::ElementsAreArray({206, 194, 102, 91,  117, 127, 68,  44, 128, 196, 45,
                                         250, 274, 215, 110, 191, 198, 108, 77, 236, 273, 173}));
  EXPECT_THAT(sample(99, 278, 22),
              testing::ElementsAreArray({206, 194, 102, 91,  117, 127, 68,  44,  128, 196, 271,
                                         275, 45,  250, 215, 110, 191, 198, 108, 77,  236, 173}));
  EXPECT_THAT(sample(7, 3, 3), ElementsAre(1, 0, 2));
  EXPECT_THAT(sample(7, 100000, 10),
              ElementsAre(42445, 19772, 51750, 85319, 6328, 9494, 70239, 12337, 47931, 76387));
}

TEST(PythonStrip, RemovesUnicodeWhiteSpace) {
  EXPECT_EQ(python_strip(" \t\n\v\f\r\x1c\x1d\x1e\x1f a b \xC2\xA0"), "a b");
  EXPECT_EQ(python_strip("\xE2\x80\x83\xC2\x85x\xE3\x80\x80\xE2\x80\xA8\xE1\x9A\x80"), "x");
  EXPECT_EQ(python_strip("\xE2\x80\x8Bx\x1b"), "\xE2\x80\x8Bx\x1b");  // not white space
  EXPECT_EQ(python_strip(" \xE2\x81\x9F\xE2\x80\xAF"), "");
  EXPECT_EQ(python_strip(""), "");
}

}  // namespace
}  // namespace muo::data
