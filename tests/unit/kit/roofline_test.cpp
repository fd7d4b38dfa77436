#include "kit/plan/roofline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "trainer/run/described_gpu.h"

namespace muo::kit {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

struct Predicted {
  trainer::RunConfig config;
  GpuRates rates;
  Roofline roofline;
};
// nanochat's model of this depth on one GPU, with 524,288 tokens per step.
Predicted predicted(const std::string& gpu, std::int64_t depth, std::int64_t rows,
                    std::optional<bool> deterministic = true) {
  const trainer::DescribedAttention attention(trainer::described_gpu("h100"));
  trainer::TrainOptions options;
  options.model.depth = depth;
  options.data.vocab_size = 32768;
  options.devices.described = gpu;
  options.batch.device_rows = rows;
  options.batch.total_tokens = 524288;
  options.batch.iterations = 10;
  options.numbers.deterministic = deterministic;
  Predicted out{
      trainer::resolve(options, data::corpus_without_tokens(options.data)), gpu_rates(gpu), {}};
  out.roofline = predict_step(out.config, out.rates);
  return out;
}
json as_json(const Predicted& p) {
  return json::parse(roofline_json(p.config, p.roofline, p.rates));
}

// Milliseconds of a micro-step measured on an H100.
double measured_ms(const std::string& result, const std::string& stage) {
  const json rows = json::parse(
      test::read_file(test::source_directory() + "/tests/bench/results/" + result))["rows"];
  for (const json& row : rows)
    if (row["stage"] == stage)
      return row["step_ms"].get<double>() / row["accumulation"].get<double>();
  ADD_FAILURE() << result << " has no " << stage;
  return 0;
}
double micro_step_ms(const Predicted& p) {
  return 1e3 * p.roofline.step / static_cast<double>(p.config.step.accumulation);
}

// The rates are frozen, so that only changed nodes change the result. They are fitted to d12 with
// 32 rows and to d24, and --tune off, which --deterministic implies, to another call; d20 and d12
// with 16 rows were not used.
TEST(Roofline, OfNanochatsModelsOnAnH100) {
  struct Known {
    std::int64_t depth, rows;
    bool deterministic;
    double micro_step_ms;
    std::vector<std::pair<std::string, std::string>> measured;
  };
  const std::string first = "2026-11-27-h100-step.json",
                    second = "2026-11-27-h100-a72bfab-step.json",
                    third = "2026-11-28-h100-ae2fda5-step.json";
  const std::vector<Known> all = {
      {12, 32, false, 105.545, {{first, "step_d12_32"}, {second, "step_d12_32"}}},
      {24, 16, false, 290.829, {{first, "step_d24_16"}, {second, "step_d24_16"}}},
      {20, 16, false, 184.602, {{third, "step_d20_16"}}},
      {12, 32, true, 107.978, {{second, "step_d12_32_same_bits"}}},
      {12, 16, false, 53.780, {{third, "step_d12_16"}}}};
  for (const Known& k : all) {
    const Predicted p = predicted("h100", k.depth, k.rows, k.deterministic);
    const double ms = micro_step_ms(p);
    EXPECT_NEAR(ms, k.micro_step_ms, 0.01) << k.depth;
    for (const auto& [result, stage] : k.measured)
      EXPECT_NEAR(ms / measured_ms(result, stage), 1, 0.02) << result << " " << stage;
    EXPECT_TRUE(p.roofline.power.is_at_limit);
    EXPECT_NEAR(p.roofline.power.joules / p.roofline.step, 690, 0.01);
  }
}

// An H200 has the H100's chip and power limit, and faster memory. No H200 was used for the fit.
TEST(Roofline, OfAnH200IsThatOfAnH100WithFasterMemory) {
  const json steps = json::parse(test::read_file(
      test::source_directory() + "/tests/bench/results/2026-11-28-h200-rotary.json"))["steps"];
  const double ms = micro_step_ms(predicted("h200", 12, 32, {}));
  for (const json& step : steps)
    if (step["variant"] == "rotary_32") {
      EXPECT_NEAR(ms / (step["step_ms"].get<double>() / 8), 1, 0.02);
    }
}

// ReLU^2 in a pass of its own took 4.5 and 4.7 % of a step, QK norm and rotary beside the
// gradients of attention 0.4 %.
TEST(Roofline, APassAtThePowerLimitCostsLessThanItsTime) {
  Predicted p = predicted("h100", 12, 32, {});
  const double fused = p.roofline.step;
  const auto cost = [&] { return 100 * (predict_step(p.config, p.rates).step / fused - 1); };
  p.config.model.fused_products = false;
  EXPECT_NEAR(cost(), 4.6, 0.3);
  p.config.model.fused_products = true;
  p.rates.rotary_in_attention = 1;
  EXPECT_NEAR(cost(), 0.4, 0.3);
}

TEST(Roofline, WithoutAPowerLimitTheClockIsTheHighest) {
  const auto unlimited = [](Predicted p) {
    p.rates.power_limit = 1e6;
    p.roofline = predict_step(p.config, p.rates);
    EXPECT_FALSE(p.roofline.power.is_at_limit);
    EXPECT_EQ(p.roofline.power.clock, 1.9e9);
    return micro_step_ms(p);
  };
  EXPECT_NEAR(unlimited(predicted("h100", 12, 32, {})) / 91.2, 1, 0.02);
  EXPECT_NEAR(unlimited(predicted("h100", 24, 16, {})) / 233, 1, 0.02);
  const Predicted a100 = predicted("a100", 12, 16, {});
  EXPECT_EQ(a100.roofline.power.clock, 1.41e9);
  EXPECT_EQ(a100.roofline.power.joules, 0);
  EXPECT_THAT(roofline_text(a100.config, a100.roofline, a100.rates),
              HasSubstr("at 1410 MHz: a power limit is not predicted"));
}

TEST(Roofline, CountsTheFlopsOfTheModelsFormula) {
  for (const std::int64_t rows : {32, 16}) {  // 8 micro-steps, unrolled, and a loop of 16
    const Predicted p = predicted("h100", 12, rows);
    const json plan = as_json(p);
    double flops = 0, ms = 0;
    for (const json& row : plan["operations"]) {
      ms += row["ms"].get<double>();
      if (row["kind"] != "optimizer" && row["operation"].get<std::string>().starts_with("gemm"))
        flops += 1e9 * row["gflop"].get<double>();
    }
    const auto tokens = static_cast<double>(p.config.tokens_per_step());
    const double products = (model::flops_per_token(p.config.model) -
                             model::attention_flops_per_token(p.config.model)) *
                            tokens;
    EXPECT_NEAR(flops / products, 1, 1e-3);  // nanochat's formula includes the few FLOPs of gates
    EXPECT_NEAR(plan["step_ms"].get<double>(), ms, 1e-6 * ms);  // one device: no overlap
    EXPECT_NEAR(plan["utilisation"].get<double>(),
                model::flops_per_token(p.config.model) * tokens / (1e-3 * ms) / 989e12, 1e-6);
  }
}

TEST(Roofline, AProductTakesWholeWavesOfTiles) {
  const GpuRates rates = gpu_rates("h100");
  // 512 x 3 tiles of 128 x 256 on 132 multiprocessors: 11.6 waves are rounded up to 12.
  const ProductTime y = predict_product({.m = 65536, .k = 768, .n = 768}, rates, 0.87);
  const double tile = 2.0 * 128 * 256 * 768 / (1027e12 / 132);
  EXPECT_EQ(y.tiles, 1536);
  EXPECT_EQ(y.waves, 12);
  EXPECT_NEAR(y.seconds, 12 * (tile + 4e-6) / 0.87, 1e-12);
  // 18 tiles: k split into 7 parts fills the GPU, and their sums fit into the workspace.
  const ProductTime dw = predict_product({.m = 768, .k = 65536, .n = 768}, rates, 0.87);
  EXPECT_EQ(dw.tiles, 126);
  EXPECT_EQ(dw.waves, 1);
  // 96 tiles of 128 x 192 in 4 parts fill three waves; a workspace of 32 MiB suffices for 3 parts
  // of 72 tiles.
  const Product wide{.m = 768, .k = 65536, .n = 3072};
  EXPECT_EQ(predict_product(wide, rates, 0.87).tiles, 384);
  GpuRates small = rates;
  small.split_bytes = 32 << 20;
  EXPECT_EQ(predict_product(wide, small, 0.87).tiles, 216);
}

trainer::TrainOptions depth_12_on_h100() {
  trainer::TrainOptions options;
  options.model.depth = 12;
  options.devices.described = "h100";
  options.batch.iterations = 10;
  return options;
}

TEST(Roofline, CollectivesOverlapWithKernels) {
  const trainer::DescribedAttention attention(trainer::described_gpu("h100"));
  trainer::TrainOptions options = depth_12_on_h100();
  options.devices.count = 8;
  const trainer::RunConfig config =
      trainer::resolve(options, data::corpus_without_tokens(options.data));
  const Roofline roofline = predict_step(config, gpu_rates("h100"));
  EXPECT_GT(roofline.collectives, 0);
  EXPECT_GT(roofline.step, roofline.kernels);
  EXPECT_LT(roofline.step, roofline.kernels + roofline.collectives);
  const json plan = json::parse(roofline_json(config, roofline, gpu_rates("h100")));
  const double flops =
      model::flops_per_token(config.model) * static_cast<double>(config.tokens_per_step());
  const double share = flops / roofline.step / (8 * 989e12);
  EXPECT_NEAR(plan["utilisation"].get<double>(), share, 1e-9);
  EXPECT_THAT(roofline_text(config, roofline, gpu_rates("h100")),
              HasSubstr(fmt::format("{:.1f}% of 989 TFLOP/s", 100 * share)));
}

TEST(Schedule, ANodeWaitsForItsResourceAndItsDependencies) {
  GraphTrace trace;
  std::vector<double> seconds;
  std::vector<bool> collective;
  const auto add = [&](bool on_link, double time, std::vector<std::uint32_t> after) {
    trace.nodes.push_back({.name = "node", .after = std::move(after), .accesses = {}});
    seconds.push_back(time);
    collective.push_back(on_link);
    return schedule(trace, seconds, collective).seconds;
  };
  EXPECT_EQ(add(false, 10, {}), 10);
  EXPECT_EQ(add(false, 4, {}), 14);   // after the first kernel
  EXPECT_EQ(add(true, 7, {0}), 17);   // overlaps the second kernel, from 10 on
  EXPECT_EQ(add(true, 5, {0}), 22);   // after the first collective
  EXPECT_EQ(add(false, 1, {2}), 22);  // from 17 on, overlaps the second collective
  EXPECT_EQ(add(false, 5, {}), 23);   // from 18 on
  EXPECT_EQ(schedule(trace, seconds, collective).longest_chain, 3);
}

TEST(Schedule, ALoopTakesAsLongAsItsPasses) {
  GraphTrace trace;
  for (std::uint32_t i = 0; i < 5; ++i)
    trace.nodes.push_back({.name = "node",
                           .after = i == 0 ? std::vector<std::uint32_t>{} : std::vector{i - 1},
                           .accesses = {}});
  trace.loops.push_back({.begin = 2, .end = 4});
  const std::vector<double> seconds = {1, 10, 100, 200, 1000};
  const std::vector<bool> collective(5, false);
  for (const std::int64_t passes : {0, 1, 7}) {
    const Schedule got = schedule(trace, seconds, collective, passes);
    EXPECT_EQ(got.seconds, 1011.0 + 300.0 * static_cast<double>(passes));
    EXPECT_EQ(got.longest_chain, 3 + 2 * passes);
  }
}

TEST(Roofline, ASymmetricProductTakesTheTimeOfItsComputedTiles) {
  const trainer::DescribedAttention attention(trainer::described_gpu("h100"));
  trainer::TrainOptions options = depth_12_on_h100();
  options.optimizer.newton_schulz = "symmetric";
  const trainer::RunConfig config =
      trainer::resolve(options, data::corpus_without_tokens(options.data));
  const GpuRates rates = gpu_rates("h100");
  const Roofline roofline = predict_step(config, rates);
  const double stretch = rates.rate_clock / roofline.power.clock;
  int found = 0;
  for (const PredictedOperation& row : roofline.operations) {
    Product whole;
    if (row.work.name != "symmetric_product") continue;
    if (std::sscanf(row.work.shape.c_str(), "%*s %ldx%ldx%ld x%ld", &whole.m, &whole.k, &whole.n,
                    &whole.batch) < 3 ||
        whole.n < 768)
      continue;  // gates are too small to be bound by tiles
    ++found;
    const auto calls = static_cast<double>(row.work.calls);
    const double part = row.work.flops / calls / whole.flops();
    EXPECT_DOUBLE_EQ(part, 36.0 / 64);  // blocks up to the diagonal, of 8 x 8 with 96 rows each
    EXPECT_NEAR(row.work.seconds / calls - rates.node_seconds,
                part * stretch * predict_product(whole, rates, rates.product_share).seconds, 1e-9);
  }
  EXPECT_EQ(found, 4);
}

// rms_norm reads and writes 65536 rows of 768 bf16 elements, and writes one fp32 number per row.
TEST(Roofline, CountsInPowersOfTen) {
  const Predicted p = predicted("h100", 12, 32);
  const json plan = as_json(p);
  std::map<std::string, double> gb;
  for (const json& row : plan["operations"]) {
    gb[row["kind"]] += row["mb"].get<double>() / 1e3;
    if (row["operation"] == "rms_norm") {
      EXPECT_NEAR(row["mb"].get<double>() / row["calls"].get<double>(), 201.588736, 1e-6);
    }
  }
  const std::string text = roofline_text(p.config, p.roofline, p.rates);
  const auto micro = static_cast<double>(p.config.step.accumulation);
  for (const json& kind : plan["kinds"]) {
    const double of_kind = gb.at(kind["kind"]);
    EXPECT_NEAR(kind["gb"].get<double>(), of_kind, 1e-6 * of_kind);
    EXPECT_THAT(text, ContainsRegex(kind["kind"].get<std::string>() + " +[0-9.]+ +[0-9.]+ +" +
                                    fmt::format("{:.1f} ", of_kind / micro)));
  }
}

TEST(Roofline, OtherGpusAreScaledFromPublishedRates) {
  const GpuRates h100 = gpu_rates("h100"), h200 = gpu_rates("h200"), a100 = gpu_rates("a100");
  EXPECT_DOUBLE_EQ(h200.tile_flops, h100.tile_flops);
  EXPECT_DOUBLE_EQ(h200.memory_rate, h100.memory_rate * 4.8 / 3.35);
  EXPECT_DOUBLE_EQ(h200.joules_per_flop, h100.joules_per_flop);
  // An H100's rates are at 1.9 GHz, its peak at 1.83.
  EXPECT_DOUBLE_EQ(a100.tile_flops, h100.tile_flops * 312 / (989 * 1.9 / 1.83));
  EXPECT_DOUBLE_EQ(a100.max_clock, 1.41e9);
  EXPECT_DOUBLE_EQ(a100.power_limit, h100.power_limit * 400 / 700);
  EXPECT_DOUBLE_EQ(a100.node_seconds, h100.node_seconds);
  const Predicted p = predicted("a100", 4, 32);
  EXPECT_THAT(roofline_text(p.config, p.roofline, p.rates), HasSubstr("scaled"));
}

TEST(Roofline, AFileReplacesSomeRates) {
  const test::TemporaryDirectory folder;
  const auto write = [&](const std::string& text) {
    std::string path = folder.path() / "rates.json";
    test::write_file(path, text);
    return path;
  };
  const GpuRates rates = gpu_rates(write(R"({"gpu": "h200", "node_seconds": 5e-6})"));
  EXPECT_EQ(rates.node_seconds, 5e-6);
  EXPECT_EQ(rates.memory_rate, gpu_rates("h200").memory_rate);
  EXPECT_EQ(gpu_rates(write(R"({"gpu": "h100", "power_limit": 500})")).power_limit, 500);
  EXPECT_THAT(test::message_of<InputError>(
                  [&] { gpu_rates(write(R"({"gpu": "h100", "power_limit": 100})")); }),
              HasSubstr("power_limit is 100 W, not above idle_power of 120 W"));
  EXPECT_THAT(test::message_of<InputError>(
                  [&] { gpu_rates(write(R"({"gpu": "h100", "node_second": 1})")); }),
              HasSubstr("unknown rate 'node_second'; did you mean 'node_seconds'?"));
  EXPECT_THAT(test::message_of<InputError>(
                  [&] { gpu_rates(write(R"({"gpu": "h100", "link_rate": -1})")); }),
              HasSubstr("link_rate is -1, not a number above 0"));
  EXPECT_THAT(test::message_of<InputError>(
                  [&] { gpu_rates(write(R"({"gpu": "h100", "product_share": 1.5})")); }),
              HasSubstr("product_share is 1.5, not a number above 0 and up to 1"));
  for (const std::string& name : {folder.path().string(), std::string("h100.json")})
    EXPECT_THAT(test::message_of<InputError>([&] { gpu_rates(name); }),
                HasSubstr("neither a file"));
  EXPECT_THAT(test::message_of<InputError>([&] { gpu_rates(write(R"({"gpu": "b300"})")); }),
              HasSubstr("unknown \"gpu\" 'b300': give one of h100"));
  EXPECT_THAT(test::message_of<InputError>([&] { gpu_rates(write("[]")); }),
              HasSubstr("not a JSON object"));
  EXPECT_THAT(test::message_of<InputError>([&] { gpu_rates("h900"); }),
              HasSubstr("neither a file nor a known GPU"));
}

TEST(Roofline, MeasuredKernelsReplaceRates) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.path() / "kernels.jsonl";
  Predicted p = predicted("h100", 12, 32);
  p.config.model.fused_products = false;  // so that each kernel is in the table
  p.rates.power_limit = 1e6;              // so that times are those at rate_clock
  p.roofline = predict_step(p.config, p.rates);
  const double forward =
      predict_product({.m = 65536, .k = 768, .n = 3072}, p.rates, p.rates.product_share).seconds;
  const double flops = 2.0 * 65536 * 768 * 3072;
  const auto row = [](const char* kernel, const char* dtype, double us, const char* of,
                      double rate) {
    return json{{"kernel", kernel}, {"dtype", dtype}, {"us", us}, {of, rate}}.dump() + "\n";
  };
  test::write_file(
      path, json{{"device", "NVIDIA H100 80GB HBM3, 79 GiB"}, {"copy_gb_per_s", 2000}}.dump() +
                "\n" +
                row("gemm/forward/768x3072", "bf16", 2e6 * forward, "tflops",
                    flops / (2 * forward) / 1e12) +
                row("relu_squared", "bf16", 1, "gb_per_s", 1000) +
                row("relu_squared", "fp32", 1, "gb_per_s", 1) +
                row("attention/window512", "bf16", 1, "tflops", 100) +
                row("attention/window2047/documents4", "bf16", 1, "tflops", 1));
  apply_measured(p.rates, path);
  const Roofline now = predict_step(p.config, p.rates);
  const auto ms_of = [&](const Roofline& roofline, const std::string& name,
                         const std::string& shape) {
    for (const PredictedOperation& found : roofline.operations)
      if (found.work.name == name && found.work.shape == shape)
        return (found.work.seconds / static_cast<double>(found.work.calls) - p.rates.node_seconds) *
               1e3;
    return 0.0;
  };
  EXPECT_NEAR(ms_of(now, "gemm", "NT 65536x768x3072"), 2e3 * forward, 1e-9);
  EXPECT_NEAR(ms_of(now, "gemm", "NT 65536x3072x768"),
              2 * ms_of(p.roofline, "gemm", "NT 65536x3072x768"), 1e-9);
  EXPECT_NEAR(ms_of(now, "relu_squared", ""), 2 * 65536.0 * 3072 * 2 / 1e12 * 1e3, 1e-9);
  EXPECT_NEAR(ms_of(now, "rms_norm", ""), 1.5 * ms_of(p.roofline, "rms_norm", ""), 1e-9);
  EXPECT_EQ(ms_of(now, "attention", "32x2048x6x128"),
            ms_of(p.roofline, "attention", "32x2048x6x128"));
  EXPECT_NEAR(ms_of(now, "attention", "32x2048x6x128 w512") * 100,
              ms_of(p.roofline, "attention", "32x2048x6x128 w512") * 355, 1e-6);
  const auto refused = [&](const json& line) {
    test::write_file(path, line.dump() + "\n");
    return test::message_of<InputError>([&] { apply_measured(p.rates, path); });
  };
  EXPECT_THAT(refused({{"device", "NVIDIA A100"}}), HasSubstr("give the same GPU"));
  EXPECT_THAT(refused({{"copy_gb_per_s", 0}}), HasSubstr("jsonl:1: copy_gb_per_s is 0"));
  EXPECT_THAT(refused({{"dtype", "bf16"}, {"us", 1}}), HasSubstr("not a line of"));
  EXPECT_THAT(refused({{"dtype", "bf16"}, {"kernel", "add"}, {"us", 1}, {"gb_per_s", -5}}),
              HasSubstr("gb_per_s is -5"));
  EXPECT_THAT(refused({{"dtype", "fp32"}}), HasSubstr("no time of a bf16 kernel"));
  EXPECT_THAT(
      test::message_of<InputError>([&] { apply_measured(p.rates, folder.path() / "none"); }),
      HasSubstr("cannot be read"));
}

TEST(Roofline, MeasuredTimesAreConvertedFromTheirClock) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.path() / "kernels.jsonl";
  const double us = 500, flops = 2.0 * 65536 * 768 * 3072;
  const json product = {{"kernel", "gemm/forward/768x3072"},
                        {"dtype", "bf16"},
                        {"us", us},
                        {"tflops", flops / us / 1e6}};
  json slow = product;
  slow["clock_mhz"] = 950;
  const auto applied = [&](const json& row) {
    test::write_file(path, row.dump() + "\n");
    GpuRates rates = gpu_rates("h100");
    apply_measured(rates, path);
    return rates;
  };
  const std::string shape = "NT 65536x768x3072";
  const GpuRates h100 = gpu_rates("h100"), old = applied(product), half = applied(slow);
  EXPECT_DOUBLE_EQ(old.measured_products.at(shape), 500e-6);
  EXPECT_DOUBLE_EQ(half.measured_products.at(shape), 250e-6);
  EXPECT_DOUBLE_EQ(half.measured_share, 2 * old.measured_share);
  EXPECT_EQ(half.joules_per_flop, h100.joules_per_flop);
  const json attention = {{"kernel", "attention/window512"},
                          {"dtype", "bf16"},
                          {"us", 1},
                          {"tflops", 100},
                          {"clock_mhz", 950}};
  EXPECT_DOUBLE_EQ(applied(attention).measured_attention.at("attention w512"), 200e12);
  const json memory = {
      {"kernel", "add"}, {"dtype", "bf16"}, {"us", 1}, {"gb_per_s", 100}, {"clock_mhz", 950}};
  EXPECT_DOUBLE_EQ(applied(memory).measured_memory.at("add"), 100e9);
  // x and w are read and y is written in bf16: 508 MB.
  const double bytes = 2.0 * (65536 * 768 + 768 * 3072 + 65536 * 3072) / (us * 1e-6);
  const double watts = h100.idle_power + 2e-12 * std::pow(0.5, 1.3) * flops / (us * 1e-6) +
                       h100.joules_per_byte * bytes;
  slow["watts"] = watts;
  EXPECT_NEAR(applied(slow).joules_per_flop, 2e-12, 1e-18);
  slow.erase("watts");
  slow["joules"] = watts * us * 1e-6;
  EXPECT_NEAR(applied(slow).joules_per_flop, 2e-12, 1e-18);
  slow.erase("clock_mhz");
  EXPECT_EQ(applied(slow).joules_per_flop, h100.joules_per_flop);
}

TEST(Roofline, PrintsClockAndPower) {
  const Predicted p = predicted("h100", 12, 32, {});
  const json plan = as_json(p);
  const double joules = 690 * p.roofline.step / 8, mhz = p.roofline.power.clock / 1e6;
  double flops = 0;
  for (const json& row : plan["operations"])
    flops += row["gflop"].get<double>() * (row["operation"] == "attention_backward" ? 1.4 : 1);
  EXPECT_NEAR(plan["executed_tflop"].get<double>(), flops / 1e3, 1e-6 * flops);
  EXPECT_NEAR(plan["clock_mhz"].get<double>(), mhz, 1e-6);
  EXPECT_EQ(plan["at_power_limit"], true);
  EXPECT_NEAR(plan["watts"].get<double>(), 690, 1e-3);
  EXPECT_NEAR(plan["micro_step_joules"].get<double>(), joules, 1e-3);
  EXPECT_NEAR(plan["picojoules_per_flop"].get<double>(), joules / (flops / 8) * 1e3, 1e-4);
  EXPECT_THAT(roofline_text(p.config, p.roofline, p.rates),
              HasSubstr(fmt::format("{:.0f} of 1900 MHz, lowered by the power limit: 690 of 690 W; "
                                    "{:.1f} J a micro-step, {:.2f} pJ an executed FLOP",
                                    mhz, joules, joules / (flops / 8) * 1e3)));
}

TEST(Roofline, ADescribedGpuRunsNothing) {
  const BackendPlugin& backend = trainer::described_backend(trainer::described_gpu("h100"));
  EXPECT_EQ(backend.name(0), "NVIDIA H100 80GB HBM3");
  EXPECT_THAT(test::message_of<Error>([&] { backend.make_device(0, 0); }),
              HasSubstr("cannot execute"));
}

}  // namespace
}  // namespace muo::kit
