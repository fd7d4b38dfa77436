#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "app/train/run_config.h"
#include "base/check.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"

namespace muo {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(TargetBatch, TakesTheRulesPlaceAndAnExplicitOneItsOwn) {
  for (std::int64_t world = 1; world <= 9; ++world) {
    TrainOptions options;
    options.model.preset = "plain";
    options.devices.backend = "host";
    options.devices.count = world;
    options.batch.target_tokens = 4096;
    const RunConfig run = resolve(options, vocabulary_only(options));
    EXPECT_EQ(run.tokens_per_step() % (256 * world), 0);
    EXPECT_LE(std::abs(run.tokens_per_step() - 4096) * 2, 256 * world) << world;
    EXPECT_EQ(run.step.accumulation, 1);
    EXPECT_EQ(testing::Value(run.notes, Contains(HasSubstr("nearest to 4096"))), 16 % world != 0);
    options.batch.total_tokens = 256 * world;
    EXPECT_EQ(resolve(options, vocabulary_only(options)).tokens_per_step(), 256 * world);
  }
  TrainOptions options;
  options.devices.backend = "host";
  options.devices.count = 3;
  options.model.set(&GptConfig::seq_len, 256);
  options.batch.total_tokens = 4096;
  EXPECT_THAT(test::message_of<InputError>(
                  [&] { static_cast<void>(resolve(options, vocabulary_only(options))); }),
              HasSubstr("give 3840 or 4608"));
}

std::string first_of(const std::string& metrics, const std::string& kind) {
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);)
    if (nlohmann::json::parse(line).at("kind") == kind) return line;
  return "{}";
}

// As scripts/train.sh starts a run, for two steps of a smaller model: no number of devices is one
// too many.
TEST(QuickConfig, TrainsOnAnyNumberOfDevices) {
  const test::TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text += "line " + std::to_string(i * i % 97) + " of the text;\n";
  test::write_file(directory.path() / "text.txt", text);
  constexpr std::int64_t kTarget = 4096, kRow = 256;
  for (const std::int64_t devices : {1, 2, 3, 5, 7}) {
    const std::string run = directory.path() / std::to_string(devices);
    const test::Outcome outcome = test::run_program(
        "train --config " + test::source_directory() + "/configs/quick.toml --data " +
        (directory.path() / "text.txt").string() + " --backend host --devices " +
        std::to_string(devices) +
        " --depth 1 --num-iterations 2 --eval-every -1 --sample-every -1 --out " + run);
    ASSERT_EQ(outcome.code, 0) << devices << " devices: " << outcome.err;
    const auto step =
        nlohmann::json::parse(first_of(test::read_file(run + "/metrics.jsonl"), "train"));
    const std::int64_t tokens = step.at("tokens").get<std::int64_t>();
    EXPECT_EQ(tokens % (devices * kRow), 0) << devices;
    EXPECT_LE(std::abs(tokens - kTarget) * 2, devices * kRow) << devices;
  }
}

}  // namespace
}  // namespace muo
