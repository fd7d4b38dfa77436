#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/files.h"
#include "support/paths.h"
#include "system/run_files.h"

namespace muo {
namespace {

// The first command of the README: builds the release preset and trains for minutes.
TEST(SlowQuickRun, ReachesItsBitsPerByte) {
  if (std::getenv("MUO_SLOW") == nullptr)  // NOLINT(concurrency-mt-unsafe): one thread
    GTEST_SKIP() << "minutes long; scripts/test.sh --slow runs it";
  const test::TemporaryDirectory directory;
  const std::filesystem::path run = directory.path() / "run";
  const std::string command = test::source_directory() + "/scripts/train.sh --out " + run.string();
  ASSERT_EQ(std::system(command.c_str()), 0);  // NOLINT(concurrency-mt-unsafe): one thread

  const auto evaluations = test::metrics_of(run, "eval");
  ASSERT_FALSE(evaluations.empty());
  EXPECT_LT(evaluations.back().at("val_bpb").get<double>(), 1.9);
}

}  // namespace
}  // namespace muo
