#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"
#include "system/run_files.h"

namespace muo {
namespace {

// As scripts/train.sh starts a run, for two steps of a smaller model: no number of devices is one
// too many.
TEST(QuickConfig, TrainsOnAnyNumberOfDevices) {
  const test::TemporaryDirectory directory;
  test::write_text(directory.path() / "text.txt", 2000);
  constexpr std::int64_t kTarget = 4096, kRow = 256;
  for (const std::int64_t devices : {1, 2, 3, 5, 7}) {
    const std::string run = directory.path() / std::to_string(devices);
    const test::Outcome outcome = test::run_program(
        "train --config " + test::source_directory() + "/configs/quick.toml --data " +
        (directory.path() / "text.txt").string() + " --backend host --devices " +
        std::to_string(devices) +
        " --depth 1 --num-iterations 2 --eval-every -1 --sample-every -1 --out " + run);
    ASSERT_EQ(outcome.code, 0) << devices << " devices: " << outcome.err;
    const std::int64_t tokens = test::metrics_of(run, "train").at(0).at("tokens");
    EXPECT_EQ(tokens % (devices * kRow), 0) << devices;
    EXPECT_LE(std::abs(tokens - kTarget) * 2, devices * kRow) << devices;
  }
}

}  // namespace
}  // namespace muo
