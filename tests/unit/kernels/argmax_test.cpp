#include "kernels/argmax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/unaligned.h"

namespace muo::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int32_t> argmax_of(const Tensor& x, std::int64_t vocab) {
  KernelStream stream;
  const HostTensor y({x.shape[0]}, DType::kI32);
  argmax(stream, {.y = y, .x = x, .vocab = vocab});
  const auto found = y.values<std::int32_t>();
  return {found.begin(), found.end()};
}

std::vector<std::int32_t> reference(const HostTensor& x, std::int64_t vocab) {
  const std::vector<double> values = x.doubles();
  const std::int64_t padded = x.tensor().shape[1];
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < x.tensor().shape[0]; ++i) {
    std::int64_t best = 0;
    for (std::int64_t j = 1; j < vocab; ++j)
      if (values[static_cast<std::size_t>(i * padded + j)] >
          values[static_cast<std::size_t>(i * padded + best)])
        best = j;
    out.push_back(static_cast<std::int32_t>(best));
  }
  return out;
}

// In bf16, many columns are equal. The padding of a row is larger than all of its columns.
TEST(Argmax, IsTheFirstOfTheLargest) {
  struct Size {
    std::int64_t n, vocab, padded;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto [n, vocab, padded] :
         {Size{1, 1, 1}, Size{3, 5, 8}, Size{40, 37, 64}, Size{7, 257, 257}, Size{5, 1063, 1088},
          Size{3, 9001, 9024}, Size{2, 70001, 70001}, Size{0, 4, 8}}) {
      HostTensor x = random_tensor({n, padded}, "x");
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = vocab; j < padded; ++j)
          x.values()[static_cast<std::size_t>(i * padded + j)] = 100;
      const HostTensor stored = x.rounded(dtype);
      const std::vector<std::int32_t> want = reference(stored, vocab);
      EXPECT_EQ(argmax_of(stored, vocab), want) << name_of(dtype) << " " << n << " " << vocab;
      if (n > 0) {
        EXPECT_EQ(argmax_of(Unaligned(stored), vocab), want) << name_of(dtype);
      }
    }
}

TEST(Argmax, IsTheFirstOfEqualValuesFarApart) {
  constexpr std::int64_t kColumns = 9000;
  const HostTensor x = random_tensor({4, kColumns}, "x");
  const std::vector<std::vector<std::int64_t>> largest = {
      {3, 8999}, {700, 701, 5000}, {1023, 1024}, {4500, 4501, 4508}};
  for (std::size_t i = 0; i < largest.size(); ++i)
    for (const std::int64_t column : largest[i])
      x.values()[i * kColumns + static_cast<std::size_t>(column)] = 50;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_THAT(argmax_of(x.rounded(dtype), kColumns), ElementsAre(3, 700, 1023, 4500));
}

TEST(Argmax, IgnoresNaN) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const HostTensor x({7, 4}, std::vector<float>{kNan,  1,     kNan,  0.5,    // one of two
                                                -2,    kNan,  -1,    -1,     // after a NaN
                                                kNan,  kNan,  kNan,  kNan,   // none
                                                -kInf, -kInf, -kInf, -kInf,  //
                                                kNan,  -kInf, kNan,  -kInf,  //
                                                -0.0F, 0.0F,  -1,    -0.0F,  // zeros are equal
                                                1,     kInf,  kNan,  kInf});
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_THAT(argmax_of(x.rounded(dtype), 4), ElementsAre(1, 2, 0, 0, 1, 0, 1)) << name_of(dtype);
}

TEST(Argmax, ErrorsNameTheMismatch) {
  KernelStream stream;
  const HostTensor x({2, 8}), y({2}, DType::kI32);
  const auto message = [&](const Tensor& to, std::int64_t vocab) {
    return message_of<Error>([&] { argmax(stream, {.y = to, .x = x, .vocab = vocab}); });
  };
  EXPECT_THAT(message(HostTensor({3}, DType::kI32), 8), HasSubstr("argmax: y is (3)"));
  EXPECT_THAT(message(HostTensor({2}), 8), HasSubstr("argmax: y is fp32"));
  EXPECT_THAT(message(y, 9), HasSubstr("vocab 9 does not fit x (2, 8)"));
  EXPECT_THAT(message(y, 0), HasSubstr("vocab 0"));
}

}  // namespace
}  // namespace muo::test
