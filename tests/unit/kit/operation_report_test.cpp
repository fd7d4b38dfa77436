#include "kit/bench/operation_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace muo::kit {
namespace {

using testing::ContainsRegex;

// Two steps on two devices; half of the time is spent in products, half in copies.
TEST(OperationReport, CountsPerDeviceAndStepInPowersOfTen) {
  trainer::RunConfig run;
  run.group.world = 2;
  StepTimes times;
  times.step = 0.25;
  times.operations = {
      {.name = "gemm",
       .shape = "NT 3x7x5",
       .phase = "forward",
       .calls = 8,
       .seconds = 0.4,
       .flops = 2e9},
      {.name = "copy", .shape = "", .phase = "forward", .calls = 4, .seconds = 0.4, .bytes = 8e9}};
  const ReferenceRates reference{.fp32 = 10e9, .bytes = 40e9};
  const auto out = operations_json(run, times, 2, reference);
  const auto& product = out["rows"][0];
  const auto& copy = out["rows"][1];
  EXPECT_EQ(product["calls"], 2);
  EXPECT_DOUBLE_EQ(product["ms"], 100);
  EXPECT_DOUBLE_EQ(product["gflop"], 0.5);
  EXPECT_DOUBLE_EQ(product["of_reference"], 0.5);
  EXPECT_DOUBLE_EQ(copy["mb"], 2000);
  EXPECT_DOUBLE_EQ(copy["of_reference"], 0.5);
  EXPECT_DOUBLE_EQ(out["step_ms"], 250);
  EXPECT_DOUBLE_EQ(out["of_step"]["operations"], 0.8);
  EXPECT_DOUBLE_EQ(out["of_operations"]["gemm"], 0.5);
  EXPECT_DOUBLE_EQ(out["reference_rates"]["fp32_gflops"], 10);
  EXPECT_DOUBLE_EQ(out["reference_rates"]["gbytes_per_s"], 40);
  const std::string text = operations_text(run, times, 2, reference);
  EXPECT_THAT(text,
              ContainsRegex("gemm NT 3x7x5 +forward  +fp32 +2 +100.00 +50.0% +5.0 GF/s +50%"));
  EXPECT_THAT(text, ContainsRegex("copy +forward +fp32 +1 +100.00 +50.0% +20.0 GB/s +50%"));
  EXPECT_THAT(text, testing::HasSubstr("40.0 GB/s in copies"));
}

}  // namespace
}  // namespace muo::kit
