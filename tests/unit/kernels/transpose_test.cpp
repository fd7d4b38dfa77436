#include "kernels/transpose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo::test {
namespace {

using ::testing::HasSubstr;

// Tiles are 32 x 32.
TEST(Transpose, IsExactUpToTheRoundingOfItsType) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 32, 32}, Shape{3, 33, 70}, Shape{2, 64, 5},
                             Shape{1, 1, 40}, Shape{0, 4, 3}})
    for (const DType from : kTypes)
      for (const DType to : kTypes) {
        KernelStream stream;
        const HostTensor x = random_tensor(shape, "x").rounded(from);
        const HostTensor y({shape[0], shape[2], shape[1]}, to);
        transpose(stream, {.y = y, .x = x});
        std::vector<double> want = x.doubles();
        if (to == DType::kBF16)
          for (double& v : want)
            v = double{to_f32(to_bf16(static_cast<float>(v)))};
        const std::vector<double> got = y.doubles();
        for (std::int64_t k = 0; k < shape[0]; ++k)
          for (std::int64_t i = 0; i < shape[1]; ++i)
            for (std::int64_t j = 0; j < shape[2]; ++j)
              ASSERT_EQ(got[static_cast<std::size_t>((k * shape[2] + j) * shape[1] + i)],
                        want[static_cast<std::size_t>((k * shape[1] + i) * shape[2] + j)])
                  << shape.text() << " " << name_of(from) << " to " << name_of(to);
      }
}

TEST(Transpose, ErrorsNameTheMismatch) {
  KernelStream stream;
  const HostTensor x({2, 3, 4});
  const auto message = [&](const Tensor& y) {
    return message_of<Error>([&] { transpose(stream, {.y = y, .x = x}); });
  };
  EXPECT_THAT(message(HostTensor({2, 3, 4})), HasSubstr("transpose: y is (2, 3, 4)"));
  EXPECT_THAT(message(HostTensor({2, 4, 3}, DType::kF64)), HasSubstr("transpose: y is fp64"));
  EXPECT_THAT(message(x.tensor().view({2, 4, 3})), HasSubstr("transpose: y overlaps x"));
}

}  // namespace
}  // namespace muo::test
