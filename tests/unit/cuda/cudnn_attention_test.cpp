#include "kernels/cuda/cudnn_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cudnn_answers.h"
#include "support/files.h"

namespace muo {
namespace {

using cuda::AttentionProblem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// cuDNN makes plans for a described GPU if it finds a driver that can load kernels. Here that is
// the fake driver, so these tests run in a child process with the fake driver on its library path.
constexpr const char* kChild = "MUO_TEST_FAKE_DRIVER";

std::filesystem::path this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

// Runs `body` in a child whose library path begins with `folder`.
void in_child(const std::filesystem::path& folder, const std::function<void()>& body) {
  if (std::getenv(kChild) != nullptr) return body();  // NOLINT(concurrency-mt-unsafe): one thread
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const test::TemporaryDirectory directory;
  const std::string log = (directory.path() / "log").string();
  const std::string command =
      concat(kChild, "=1 LD_LIBRARY_PATH='", folder.string(), "':\"$LD_LIBRARY_PATH\" '",
             this_program().string(), "' --gtest_filter=", test->test_suite_name(), ".",
             test->name(), " >'", log, "' 2>&1");
  const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe,cert-env33-c)
  const std::string output = test::read_file(log);
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, HasSubstr("[  PASSED  ] 1 test"));
}
void with_fake_driver(const std::function<void()>& body) {
  if (!cuda::cudnn_missing().empty()) GTEST_SKIP() << cuda::cudnn_missing();
  const std::filesystem::path folder = this_program().parent_path() / "fake_driver";
  if (!exists(folder / "libcuda.so.1")) GTEST_SKIP() << "no fake driver in " << folder;
  in_child(folder, body);
}

// A Hopper GPU with 132 multiprocessors, in the format of cuDNN 9.
const cuda::DescribedGpu kHopper{.capability = 90, .properties = R"({
  "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "deviceName": "Hopper",
  "multiProcessorCount": 132, "warpSize": 32, "pciDeviceId": 0, "isTccDriver": 0,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
  "supportCoopLaunch": 1, "totalGlobalMem": 85000000000, "l2CacheSize": 52428800,
  "smClockRateKHz": 1980000, "memClockRateKHz": 2619000})"};

AttentionProblem problem(std::int64_t h, std::int64_t kv_heads, std::int64_t window) {
  return {.b = 4,
          .t = 2048,
          .heads = 12,
          .kv_heads = kv_heads,
          .h = h,
          .window = window,
          .scale = static_cast<float>(1.0 / std::sqrt(h))};
}
constexpr std::int64_t kPlain = 2048;  // a window that covers all keys

void expect_plan(const AttentionProblem& p, AttentionDirection direction, bool deterministic) {
  EXPECT_THAT(cuda::cudnn_attention_support_on(p, direction, deterministic, kHopper).why_not,
              IsEmpty());
}

TEST(CudnnAttention, HasPlansForOurModels) {
  with_fake_driver([] {
    expect_plan(problem(64, 12, kPlain), AttentionDirection::kForward, true);
    expect_plan(problem(128, 12, 511), AttentionDirection::kForward, true);
    expect_plan(problem(128, 4, kPlain), AttentionDirection::kBackward, true);
    expect_plan(problem(64, 4, 511), AttentionDirection::kBackward, true);
  });
}

TEST(SlowCudnnAttention, HasPlansForEveryWindowAndGroupAndHeadSize) {
  if (std::getenv("MUO_SLOW") == nullptr)  // NOLINT(concurrency-mt-unsafe): one thread
    GTEST_SKIP() << "set MUO_SLOW to run it";
  with_fake_driver([] {
    for (const std::int64_t h : {64, 96, 128, 256})
      for (const std::int64_t kv_heads : {12, 4, 1})
        for (const std::int64_t window : {kPlain, std::int64_t{511}, std::int64_t{0}})
          for (const bool deterministic : {true, false}) {
            SCOPED_TRACE(concat("h ", h, " kv_heads ", kv_heads, " window ", window,
                                " deterministic ", deterministic));
            const AttentionProblem p = problem(h, kv_heads, window);
            if (deterministic) expect_plan(p, AttentionDirection::kForward, true);
            expect_plan(p, AttentionDirection::kBackward, deterministic);
          }
  });
}

TEST(CudnnAttention, DeterministicGradientsNeedMemoryForTheScores) {
  with_fake_driver([] {
    const AttentionProblem p = problem(64, 12, kPlain);
    const auto workspace = [&](AttentionDirection direction, bool deterministic) {
      return cuda::cudnn_attention_support_on(p, direction, deterministic, kHopper).workspace;
    };
    const std::int64_t scores = 2 * p.b * p.heads * p.t * p.t;
    const std::int64_t gradient = 4 * p.b * p.heads * p.t * p.h;
    EXPECT_LE(workspace(AttentionDirection::kForward, true), 4096);
    const std::int64_t deterministic = workspace(AttentionDirection::kBackward, true);
    EXPECT_GE(deterministic, scores);
    EXPECT_LE(deterministic, scores + 2 * gradient);
    const std::int64_t free = workspace(AttentionDirection::kBackward, false);
    EXPECT_GE(free, gradient);
    EXPECT_LE(free, 2 * gradient);
  });
}

// With cuDNN's own answers: a step of depth 12 with 32 rows uses our own backward pass only because
// deterministic gradients need 1.5 GiB.
TEST(CudnnAttention, ItsAnswersForDepth12DecideEachDirection) {
  with_fake_driver([] {
    AttentionSize size{.b = 32,
                       .t = 2048,
                       .heads = 6,
                       .kv_heads = 6,
                       .h = 128,
                       .window = kPlain,
                       .scale = 0.1F,
                       .dtype = DType::kBF16};
    const auto choose = [&](AttentionDirection direction) {
      return choose_attention(
          size, direction,
          [&] {
            return cuda::cudnn_attention_support_on(cuda::problem_of(size), direction,
                                                    size.method.deterministic, kHopper);
          },
          {}, false);
    };
    using Kernels = AttentionChoice::Kernels;
    EXPECT_EQ(choose(AttentionDirection::kForward).kernels, Kernels::kLibrary);
    EXPECT_EQ(choose(AttentionDirection::kBackward).kernels, Kernels::kTensorCores);
    size.method.deterministic = false;
    EXPECT_EQ(choose(AttentionDirection::kBackward).kernels, Kernels::kLibrary);
    size.method.deterministic = true;
    size.b = 16;
    EXPECT_EQ(choose(AttentionDirection::kBackward).kernels, Kernels::kLibrary);
  });
}

TEST(CudnnAttention, ReportsUnsupportedSizes) {
  with_fake_driver([] {
    const auto refusal = [](const AttentionProblem& p, AttentionDirection direction) {
      return cuda::cudnn_attention_support_on(p, direction, true, kHopper).why_not;
    };
    EXPECT_THAT(
        refusal(problem(20, 4, 511), AttentionDirection::kForward),
        AllOf(HasSubstr("cuDNN's attention of b 4, t 2048, 12 heads on 4 of 20, window 511"),
              HasSubstr("multiple of 8")));
    EXPECT_THAT(refusal(problem(264, 4, 511), AttentionDirection::kBackward),
                AllOf(HasSubstr("cuDNN's attention gradient of"), HasSubstr("256")));
  });
}

// Sizes used in tests of kernels and models, and limits.
TEST(CudnnAttention, TheSimtTiersStandInSupportsTheSameSizes) {
  with_fake_driver([] {
    std::vector<AttentionProblem> problems;
    for (const std::int64_t h : {1, 8, 17, 20, 24, 40, 64, 72, 128, 136, 256, 264})
      problems.push_back({.b = 1, .t = 65, .heads = 2, .kv_heads = 1, .h = h, .window = 65});
    for (const std::int64_t t : {1, 2, 12, 17, 64, 200, 300})
      problems.push_back({.b = 2, .t = t, .heads = 4, .kv_heads = 2, .h = 16, .window = t});
    for (const std::int64_t window : {0, 1, 5, 63, 64})
      problems.push_back({.b = 1, .t = 100, .heads = 2, .kv_heads = 2, .h = 32, .window = window});
    for (const AttentionProblem& p : problems)
      for (const auto direction : {AttentionDirection::kForward, AttentionDirection::kBackward}) {
        const std::string cudnns =
            cuda::cudnn_attention_support_on(p, direction, true, kHopper).why_not;
        EXPECT_EQ(cudnns.empty(), cudnn_answer(p, direction, true).why_not.empty())
            << "h " << p.h << ", t " << p.t << ", window " << p.window << ": " << cudnns;
      }
  });
}

TEST(CudnnAttention, ReportsThatCudnnDoesNotLoad) {
  if (cuda::cudnn_missing().starts_with("this build")) GTEST_SKIP() << cuda::cudnn_missing();
  const test::TemporaryDirectory directory;
  test::write_file(directory.path() / "libcudnn.so.9", "not a library");
  in_child(directory.path(), [] {
    EXPECT_THAT(cuda::cudnn_missing(), HasSubstr("cuDNN 9 does not load: "));
    EXPECT_THAT(
        cuda::cudnn_attention_support(problem(64, 12, kPlain), AttentionDirection::kForward, true)
            .why_not,
        HasSubstr("cuDNN 9 does not load: "));
  });
}

}  // namespace
}  // namespace muo
