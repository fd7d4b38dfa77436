#include <gtest/gtest.h>

#include <cmath>

#include "trainer/run/device_rates.h"

namespace muo::trainer {
namespace {

TEST(GemmRate, IsARateForAnyNumberOfDevices) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int devices : {1, 3}) {
      const double rate = measure_gemm_rate({.world = devices}, dtype, 64);
      EXPECT_TRUE(std::isfinite(rate)) << devices;
      EXPECT_GT(rate, 0) << devices;
    }
}

TEST(FlopsText, HasAboutThreeDigits) {
  EXPECT_EQ(flops_text(989e12), "989 TFLOP/s");
  EXPECT_EQ(flops_text(306.6e9), "307 GFLOP/s");
  EXPECT_EQ(flops_text(2.5e15), "2500 TFLOP/s");
}

}  // namespace
}  // namespace muo::trainer
