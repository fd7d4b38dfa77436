#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/gemm_algorithms.h"
#include "kernels/gemm.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;

// Runs with MUO_TEST_BACKEND=cuda on a GPU, and with simt on the stand-in for cuBLASLt.
class GemmOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::kernel_backend() == test::KernelBackend::kHost)
      GTEST_SKIP() << "MUO_TEST_BACKEND is neither cuda nor simt";
    cuda::gemm_algorithms().set_measuring(true);
  }
  void TearDown() override { cuda::gemm_algorithms().set_measuring(false); }
};

// Sizes that no other test uses, because plans are kept for the life of the process.
TEST_F(GemmOnGpu, MeasuresAProblemOnceWithoutChangingItsTensors) {
  const HostTensor a = random_tensor({200, 328}, "a").rounded(DType::kBF16);
  const HostTensor b = random_tensor({136, 328}, "b").rounded(DType::kBF16);
  const HostTensor c = random_tensor({200, 136}, "c").rounded(DType::kBF16);
  const HostTensor d = c.copy();
  const std::size_t before = cuda::gemm_algorithms().size();
  test::KernelStream stream;
  // The product is added to d only once, although measuring computes it many times.
  const auto add = [&] {
    gemm(stream, {.d = d, .c = d, .a = a, .b = b, .beta = 1.0F, .transpose_b = true});
    stream.synchronize();
  };
  add();
  EXPECT_EQ(cuda::gemm_algorithms().size(), before + 1);
  const HostTensor once({200, 136}, DType::kBF16);
  gemm(stream, {.d = once, .c = c, .a = a, .b = b, .beta = 1.0F, .transpose_b = true});
  stream.synchronize();
  EXPECT_EQ(cuda::gemm_algorithms().size(), before + 2);  // another addend is another problem
  const std::vector<double> got = d.doubles();
  const std::vector<double> want = once.doubles();
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 0.02 * (1.0 + std::abs(want[i]))) << i;
  add();
  EXPECT_EQ(cuda::gemm_algorithms().size(), before + 2);
}

TEST(GemmMeasuring, RepeatsAProductForAMillisecondButAtMostAHundredTimes) {
  EXPECT_EQ(cuda::measuring_repeats(3.0F), 1);
  EXPECT_EQ(cuda::measuring_repeats(0.25F), 4);
  EXPECT_EQ(cuda::measuring_repeats(0.0078125F), 100);  // capped; would be 128
  EXPECT_EQ(cuda::measuring_repeats(0.0F), 100);
}

// The handle of the product is created, and its kernel loaded, during the capture.
TEST_F(GemmOnGpu, AProductMayFirstOccurInACapture) {
  cuda::gemm_algorithms().set_measuring(false);
  const HostTensor a = random_tensor({56, 136}, "a").rounded(DType::kBF16);
  const HostTensor b = random_tensor({136, 24}, "b").rounded(DType::kBF16);
  const HostTensor d({56, 24});
  const HostTensor eager({56, 24});
  test::KernelStream stream;
  const auto graph = stream.capture([&] { gemm(stream, {.d = d, .a = a, .b = b}); });
  stream.launch(*graph);
  stream.synchronize();
  gemm(stream, {.d = eager, .a = a, .b = b});
  stream.synchronize();
  EXPECT_EQ(d.doubles(), eager.doubles());
  EXPECT_NE(d.doubles(), HostTensor({56, 24}).doubles());
}

TEST_F(GemmOnGpu, RefusesToMeasureDuringACapture) {
  const HostTensor a = random_tensor({72, 264}, "a").rounded(DType::kBF16);
  const HostTensor b = random_tensor({264, 40}, "b").rounded(DType::kBF16);
  const HostTensor d({72, 40});
  const HostTensor eager({72, 40});
  test::KernelStream stream;
  const auto capture = [&] {
    return stream.capture([&] { gemm(stream, {.d = d, .a = a, .b = b}); });
  };
  EXPECT_THAT(test::message_of<Error>([&] { static_cast<void>(capture()); }),
              testing::HasSubstr("during a capture of its stream"));
  gemm(stream, {.d = eager, .a = a, .b = b});
  stream.synchronize();
  const auto graph = capture();  // the algorithm is known by now
  stream.launch(*graph);
  stream.synchronize();
  EXPECT_EQ(d.doubles(), eager.doubles());
  EXPECT_NE(d.doubles(), HostTensor({72, 40}).doubles());
}

}  // namespace
}  // namespace muo
