// Plans every file of configs/ on GPUs that need not be present, and compares the results with
// configs/README.md.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_table.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// Runs are only planned, with the SIMT tier in place of the CUDA plug-in.
constexpr std::string_view kMachine =
    "MUO_CUDA_PLUGIN=muograph_simt CUDA_STAND_IN_GPUS=8 SIMT_GPU_MEMORY=80000000000";
// The FLOP/s that the hours in the table assume, half of an H100's peak, and the seconds of an
// hour.
constexpr double kHalfPeak = 989e12 / 2, kHour = 3600;

fs::path configs() { return fs::path(test::source_directory()) / "configs"; }

json planned(const std::string& name, const std::string& options) {
  const test::Outcome outcome = test::run_program(
      "plan --json --backend cuda --config " + name + " " + options, std::string(kMachine));
  EXPECT_EQ(outcome.code, 0) << name << ": " << outcome.err;
  return outcome.code == 0 ? json::parse(outcome.out) : json();
}

// The cells of a file's row in the table.
std::vector<std::string> row_of(const std::string& name) {
  std::istringstream readme(test::read_file(configs() / "README.md"));
  for (std::string line; std::getline(readme, line);) {
    if (!line.starts_with("| ") || line.find("`" + name + "`") == std::string::npos) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(2));
    for (std::string cell; std::getline(row, cell, '|');) {
      cell.erase(0, std::min(cell.find_first_not_of(' '), cell.size()));
      cell.erase(cell.find_last_not_of(' ') + 1);
      cells.push_back(cell);
    }
    return cells;
  }
  ADD_FAILURE() << "configs/README.md has no row of " << name;
  return {};
}

enum Column : std::uint8_t { kSteps = 3, kFlops = 4, kMemory = 5, kHours = 6, kColumns = 8 };

std::string gigabytes(const json& plan) {
  return fmt::format("{:.1f}", plan["memory_bytes_per_device"].get<double>() / 1e9);
}

TEST(Configs, CostWhatTheirTableSaysAndFitGpusOf80GB) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(configs())) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    const std::string name = entry.path().filename();
    EXPECT_THAT(test::read_file(entry.path()), testing::StartsWith("# ")) << name;
    const std::vector<std::string> row = row_of(name);
    ASSERT_EQ(row.size(), kColumns) << name;
    const json plan = planned(name, "");
    ASSERT_TRUE(plan.is_object());
    if (name.starts_with("bench_")) continue;
    EXPECT_EQ(row[kSteps], grouped(plan["iterations"])) << name;
    const double flops = plan["total_flops"];
    EXPECT_EQ(row[kFlops], fmt::format("{:.1e}", flops).erase(4, 1)) << name;
    if (row[kMemory].empty()) continue;  // a configuration for a CPU
    EXPECT_EQ(row[kHours], fmt::format("{:.2g}", flops / kHalfPeak / kHour)) << name;
    // The speedrun's file sets the number of devices, so its rows hold only for that number.
    const bool of_eight = name == "speedrun-8gpu.toml";
    EXPECT_EQ(row[kMemory],
              fmt::format("{} / {} GB", of_eight ? "-" : gigabytes(planned(name, "--devices 1")),
                          gigabytes(of_eight ? plan : planned(name, "--devices 8"))))
        << name;
    // The file's comment gives the same figures, if any.
    std::string text = test::read_file(entry.path());
    std::ranges::replace(text, '\n', ' ');
    if (text.find("Predicted") == std::string::npos) continue;
    for (std::size_t at = text.find(" # "); at != std::string::npos; at = text.find(" # "))
      text.erase(at, 2);
    EXPECT_THAT(text, HasSubstr(row[kSteps] + " steps, " + row[kFlops] + " FLOPs, ")) << name;
    const std::string of_many = row[kMemory].substr(row[kMemory].find("/ ") + 2);
    EXPECT_THAT(text, HasSubstr(of_many + " of each")) << name;
  }
  EXPECT_GE(files, 11);
}

// The number of shards of 10^8 tokens to fetch is the number of shards that a run reads once.
TEST(Configs, NameAsManyShardsAsTheyRead) {
  constexpr std::int64_t kShardTokens = 100'000'000;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(configs())) {
    const std::string text = test::read_file(entry.path());
    const std::string option = "fetch_fineweb.sh --shards ";
    const std::size_t at = text.find(option);
    if (at == std::string::npos) continue;
    ++files;
    const std::string name = entry.path().filename();
    const std::int64_t shards = std::stoll(text.substr(at + option.size()));
    const json plan = planned(name, "");
    const std::int64_t tokens =
        plan["iterations"].get<std::int64_t>() * plan["total_batch_tokens"].get<std::int64_t>();
    EXPECT_EQ(shards, (tokens + kShardTokens - 1) / kShardTokens) << name;
    EXPECT_THAT(row_of(name)[2], HasSubstr(std::to_string(shards) + " shards"));
  }
  EXPECT_EQ(files, 5);
}

}  // namespace
}  // namespace muo
