// Runs `plan` as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

#include "base/check.h"
#include "support/program.h"
#include "trainer/run/backend.h"

namespace muo {
namespace {

using test::Outcome;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Plans a nanochat model of a depth on one GPU or on virtual ranks of it.
nlohmann::json planned(std::int64_t gpu_bytes, const std::string& depth_and_more = "12") {
  const Outcome outcome = run_program(
      "plan --json --backend cuda --vocab-size 32768 --devices 1 --depth " + depth_and_more,
      "MUO_CUDA_PLUGIN=muograph_simt SIMT_GPU_MEMORY=" + std::to_string(gpu_bytes));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}
std::int64_t rows_of(const nlohmann::json& plan) { return plan["device_batch_size"]; }
std::int64_t bytes_of(const nlohmann::json& plan) { return plan["memory_bytes_per_device"]; }

TEST(FitBatch, OfAGpuIsUpTo65536TokensThatFitItsMemory) {
  constexpr std::int64_t kKept = trainer::kLibraryMemory + trainer::kContextMemory;
  const nlohmann::json roomy = planned(1024 * kGiB);
  EXPECT_EQ(rows_of(roomy), 32);  // rows of 2048 tokens
  EXPECT_EQ(roomy["total_batch_tokens"], 524288);
  EXPECT_THAT(roomy.dump(), HasSubstr("32 rows need"));
  EXPECT_EQ(rows_of(planned(1024 * kGiB, "12 --max-seq-len 1024")), 64);
  EXPECT_EQ(rows_of(planned(bytes_of(roomy) + kKept)), 32);
  const nlohmann::json smaller = planned(bytes_of(roomy) + kKept - 1);
  EXPECT_EQ(rows_of(smaller), 16);
  EXPECT_EQ(smaller["total_batch_tokens"], 524288);
  EXPECT_THAT(smaller.dump(), HasSubstr("for tensors: a GPU's memory less 2560.0 MiB for CUDA"));
  // Two ranks get half of the rows each.
  EXPECT_LT(rows_of(planned(bytes_of(roomy) + kKept, "12 --ranks-per-device 2")), 32);
  // The rows of 7 ranks are in equal micro-steps with nearly the same total.
  const nlohmann::json seven = planned(1024 * kGiB, "12 --ranks-per-device 7");
  EXPECT_EQ(rows_of(seven), 18);
  EXPECT_EQ(seven["total_batch_tokens"], 2 * 18 * 7 * 2048);
}

// If the requested rows do not fit, logits are computed in smaller chunks, and an explicit batch is
// kept.
TEST(FitBatch, OfAGpuMakesLogitsInSmallerChunksBeforeItGivesUp) {
  constexpr std::int64_t kKept = trainer::kLibraryMemory + trainer::kContextMemory;
  const std::string options = "1 --max-seq-len 8192 --device-batch-size 4 --recompute none";
  const std::int64_t whole = bytes_of(planned(1024 * kGiB, options));
  const nlohmann::json tight = planned(whole + kKept - 1, options);
  EXPECT_EQ(rows_of(tight), 4);
  EXPECT_THAT(tight.dump(), HasSubstr("logits: 64 MiB at a time"));
  EXPECT_LT(bytes_of(tight), whole - 256 * (kGiB >> 10));
}

TEST(FitMemory, OfAGpuRecomputesWhereRowsWereAskedFor) {
  constexpr std::int64_t kKept = trainer::kLibraryMemory + trainer::kContextMemory;
  const std::string options = "12 --device-batch-size 16";
  const std::int64_t whole = bytes_of(planned(1024 * kGiB, options));
  const nlohmann::json tight = planned(whole + kKept - 1, options);
  EXPECT_EQ(rows_of(tight), 16);
  EXPECT_EQ(tight["recompute"]["mlp_layers"], 1);
  EXPECT_GT(tight["recompute"]["flops_per_token"], 0);
  EXPECT_THAT(tight.dump(), HasSubstr("recompute: the MLPs of the first 1 of 12 layers"));
  // With a limit in place of the GPU's memory.
  const nlohmann::json limited =
      planned(1024 * kGiB, options + " --memory-limit " + std::to_string(whole + kKept - 1));
  EXPECT_EQ(limited["memory_bytes_per_device"], tight["memory_bytes_per_device"]);
  EXPECT_THAT(limited.dump(), HasSubstr("for tensors: --memory-limit less 2560.0 MiB for CUDA"));
}

// On a machine without GPUs.
TEST(Plan, IsOfAnyGpu) {
  const std::string depth = "plan --depth 12 --vocab-size 32768 --devices 8 ";
  const auto step = [&](const std::string& gpu) {
    const Outcome outcome = run_program(depth + gpu);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("compute bf16"));
    const std::size_t at = outcome.out.find("Step: ");
    return outcome.out.substr(at, outcome.out.find('\n', at) - at);
  };
  EXPECT_THAT(step("--gpu h100"), HasSubstr("524288 tokens = 8 x 1 x 32 x 2048"));
  EXPECT_EQ(step("--memory 80GB"), step("--gpu h100"));
  EXPECT_THAT(step("--memory 12GB"), HasSubstr("524288 tokens = 8 x "));
  EXPECT_NE(step("--memory 12GB"), step("--memory 80GB"));
  EXPECT_EQ(run_program(depth + "--memory 4GB").code, 2);
  EXPECT_THAT(run_program(depth + "--gpu v100").err,
              HasSubstr("--gpu: 'v100' is unknown: give h1"));
  for (const char* name : {"H100", "'NVIDIA H100 80GB HBM3'", "h100-sxm5"})
    EXPECT_EQ(step(concat("--gpu ", name)), step("--gpu h100")) << name;
  EXPECT_EQ(run_program(depth + "--gpu 'H100 PCIe'").code, 2);
  EXPECT_THAT(
      run_program(depth + "--gpu 4090").out,
      testing::ContainsRegex("Time: about [0-9a-z]+, [0-9.e+]+ ms a step, by --roofline rtx4090"));
  EXPECT_EQ(run_program(depth + "--gpu h100 --backend host").code, 2);
  EXPECT_EQ(run_program(depth + "--gpu H100 --roofline h100").code, 0);
  EXPECT_EQ(run_program(depth + "--gpu h100 --roofline h200").code, 2);
}

// For two host devices of 150 MB each; `plan` with a limit of 300 MB for both checks the result.
TEST(LargestModel, OfPlanFitsAndTheNextDoesNot) {
  const std::string common =
      "--backend host --devices 2 --max-seq-len 256 --device-batch-size 1 --total-batch-size "
      "16384 ";
  const Outcome outcome = run_program("plan --largest --memory 150MB --json " + common);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto models = nlohmann::json::parse(outcome.out)["models"];
  ASSERT_EQ(models.size(), 12U);
  // LargestModel.FitsAndTheNextDepthDoesNot checks every combination; this test checks one of each
  // kind.
  for (const std::size_t i : {0U, 5U, 11U}) {
    const auto& model = models[i];
    const std::int64_t depth = model["depth"];
    const auto code = [&](std::int64_t of_depth) {
      return run_program("plan --memory-limit 300MB " + common + "--shard " +
                         model["shard"].get<std::string>() + " --recompute " +
                         model["recompute"].get<std::string>() + " --depth " +
                         std::to_string(of_depth))
          .code;
    };
    EXPECT_EQ(code(depth), 0) << model;
    EXPECT_EQ(code(depth + 1), 2) << model;
  }
  EXPECT_THAT(
      run_program("plan --largest --memory 150MB " + common).out,
      AllOf(HasSubstr(
                "The deepest models that can be trained on 2 host devices with 143.05 MiB each"),
            HasSubstr("with a vocabulary of 257:")));
  EXPECT_EQ(run_program("plan --largest --compare --memory 1GB").code, 2);
}

}  // namespace
}  // namespace muo
