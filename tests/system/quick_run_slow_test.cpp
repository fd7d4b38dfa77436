#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "support/files.h"
#include "support/paths.h"

namespace muo {
namespace {

// The first command of the README: builds the release preset and trains for minutes.
TEST(SlowQuickRun, EndsBelowTheBitsPerByteItIsMeantFor) {
  if (std::getenv("MUO_SLOW") == nullptr)  // NOLINT(concurrency-mt-unsafe): one thread
    GTEST_SKIP() << "minutes long; scripts/test.sh --slow runs it";
  const test::TemporaryDirectory directory;
  const std::filesystem::path run = directory.path() / "run";
  const std::string command = test::source_directory() + "/scripts/train.sh --out " + run.string();
  ASSERT_EQ(std::system(command.c_str()), 0);  // NOLINT(concurrency-mt-unsafe): one thread

  double bits_per_byte = 1e9;
  std::istringstream lines(test::read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.at("kind") == "eval") bits_per_byte = record.at("val_bpb").get<double>();
  }
  EXPECT_LT(bits_per_byte, 1.9);
}

}  // namespace
}  // namespace muo
