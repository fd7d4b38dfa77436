#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

#include "graphs/step_phases.h"
#include "optim/sharding_plan.h"
#include "support/program.h"
#include "support/sanitized.h"

namespace muo {
namespace {

using test::Outcome;
using test::run_program;
using ::testing::HasSubstr;

// Two ranks and two micro-steps of a small model.
std::string options(const std::string& what, const std::string& more) {
  return "bench " + what +
         " --model plain --n-layer 2 --n-embd 32 --n-head 2 --max-seq-len 16 --device-batch-size 2 "
         "--total-batch-size 128 --num-iterations 10 --steps 3 --dtype fp32 " +
         more;
}
const std::string kHost = "--backend host --devices 2 ";
const std::string kSimt = "--backend cuda --devices 1 --ranks-per-device 2 ";

nlohmann::json measured(const std::string& arguments, const std::string& environment = "") {
  const Outcome outcome = run_program(arguments + " --json", environment);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

TEST(Bench, PhasesAddUpToTheStep) {
  const nlohmann::json out = measured(options("step", kHost));
  EXPECT_EQ(out["ranks"], 2);
  EXPECT_EQ(out["tokens_per_step"], 128);
  EXPECT_EQ(out["accumulation"], 2);
  EXPECT_NEAR(out["tokens_per_s"].get<double>() * out["step_ms"].get<double>(), 128e3, 1);
  EXPECT_GT(out["share"].get<double>(), 0);
  EXPECT_NEAR(out["share"].get<double>() * out["peak_gflops"].get<double>(),
              out["model_gflops"].get<double>(), 1e-6 * out["model_gflops"].get<double>());
  for (const std::string_view phase : graphs::kStepPhases) {
    const nlohmann::json& ranks = out["phases_ms"][std::string(phase)];
    ASSERT_EQ(ranks.size(), 2U) << phase;
    for (const nlohmann::json& ms : ranks)
      EXPECT_GE(ms.get<double>(), 0) << phase;
  }
  for (const char* phase : {"forward", "losses", "backward", "update"})
    EXPECT_GT(out["phases_ms"][phase][1].get<double>(), 0) << phase;
}

TEST(Bench, OperationsAddUpToTheStep) {
  const nlohmann::json out = measured(options("step", kHost))["operations"];
  const double step = out["step_ms"].get<double>();
  double work = 0;
  double waited = 0;
  double gflop = 0;
  for (const nlohmann::json& row : out["rows"]) {
    work += row["ms"].get<double>();
    waited += row["waited_ms"].get<double>();
    if (row["operation"] == "gemm" && row["phase"] != "update") gflop += row["gflop"].get<double>();
    EXPECT_GT(row["calls"].get<double>(), 0) << row;
  }
  const nlohmann::json& of_step = out["of_step"];
  EXPECT_NEAR(work, step * of_step["operations"].get<double>(), 1e-6 * step);
  EXPECT_NEAR(waited,
              step * (of_step["waiting_for_devices"].get<double>() +
                      of_step["waiting_for_processor"].get<double>()),
              1e-6 * step);
  // The rest is work of the host: copying a batch, and the launch. Its amount depends on the load
  // of the machine.
  EXPECT_GT(of_step["between"].get<double>(), 0);
  // The FLOPs of a device's 64 tokens: forward, and twice that for backward, of 12 matrices of 32 x
  // 32 or equivalent, and of 320 padded rows of lm_head.
  EXPECT_NEAR(gflop, 1e-9 * 3 * 2 * 64 * (2 * 12 * 32 * 32 + 320 * 32), 1e-12);
  const nlohmann::json& shares = out["of_operations"];
  EXPECT_NEAR(shares["gemm"].get<double>() + shares["attention"].get<double>() +
                  shares["outside"].get<double>(),
              1, 1e-9);
  double optimizer = 0;
  for (const char* part : {"compute", "reduce", "commit", "gather"}) {
    EXPECT_GT(shares["optimizer"][part].get<double>(), 0) << part;
    optimizer += shares["optimizer"][part].get<double>();
  }
  EXPECT_NEAR(optimizer, shares["optimizer"]["whole"].get<double>(), 1e-9);
  EXPECT_GT(out["reference_rates"]["gbytes_per_s"].get<double>(), 0);
}

TEST(Bench, OperationsAreTimedInGraphsOfTheHost) {
  for (const auto& [where, environment] :
       {std::pair{kHost + "--graph off", ""}, std::pair{kSimt, "MUO_CUDA_PLUGIN=muograph_simt"}}) {
    const Outcome outcome = run_program(options("step", where), environment);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("no table of operations"));
    EXPECT_THAT(outcome.out, HasSubstr("backward"));  // a row of the table of phases
  }
}

TEST(Bench, AStepHasItsPowerWhereTheDriverReportsIt) {
  const std::string simt = "MUO_CUDA_PLUGIN=muograph_simt ";
  const nlohmann::json power = measured(options("step", kSimt), simt)["power"];
  EXPECT_GT(power["clock_mhz"].get<double>(), 1499);
  EXPECT_EQ(power["limit_watts"], 700);
  EXPECT_EQ(measured(options("step", kSimt), simt + "NVML_STAND_IN=no_energy")["power"], nullptr);
  const Outcome outcome = run_program(options("step", kSimt), simt + "NVML_STAND_IN=failed");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr(" W a device")));
}

TEST(Bench, ALaunchIsMeasuredOnDevicesOnly) {
  const nlohmann::json device = measured(options("launch", kSimt), "MUO_CUDA_PLUGIN=muograph_simt");
  EXPECT_EQ(device["device"], "the CPU");
  for (const char* how : {"replay", "eager"}) {
    EXPECT_GT(device[how]["tokens_per_s"].get<double>(), 0);
    ASSERT_EQ(device[how]["host_us"].size(), 2U);
    EXPECT_GT(device[how]["host_us"][1].get<double>(), 0);
  }
  EXPECT_GT(device["exposed_gather_ms"].get<double>(), 0);
  EXPECT_EQ(device["attention"][0], "attention, window 16: own kernels in fp32 (tensors are fp32)");
  const nlohmann::json host = measured(options("launch", kHost));
  EXPECT_FALSE(host["replay"].contains("host_us")) << "where a launch computes";
  EXPECT_GT(host["replay_over_eager"].get<double>(), 0);
}

TEST(Bench, PrintsATable) {
  const Outcome step = run_program(options("step", kHost));
  EXPECT_EQ(step.code, 0) << step.err;
  for (const char* text : {"2 ranks", "128 tokens per step", "% of the peak", "rank 1", "backward",
                           "gemm NT 32x32x128", "smaller rows", "outside both", "optimizer "})
    EXPECT_THAT(step.out, HasSubstr(text));
  const Outcome launch = run_program(options("launch", kHost));
  for (const char* text : {"replay", "eager", "exposed on the slowest rank"})
    EXPECT_THAT(launch.out, HasSubstr(text));
}

TEST(Bench, TheUpdateAloneByStrategy) {
  for (const std::string& where : {kHost, kSimt}) {
    const bool host = where == kHost;
    if (test::kSanitized && !host) continue;  // both use the same measuring code
    const std::string environment = host ? "" : "MUO_CUDA_PLUGIN=muograph_simt";
    const nlohmann::json out = measured(options("optimizer", where), environment);
    ASSERT_EQ(out["strategies"].size(), optim::strategy_names().size());
    EXPECT_EQ(out.contains("cores"), host);
    for (std::size_t i = 0; i < optim::strategy_names().size(); ++i) {
      const nlohmann::json& row = out["strategies"][i];
      EXPECT_EQ(row["strategy"], optim::strategy_names()[i]);
      const double ms = row["update_ms"].get<double>();
      // Two layers of 6 matrices, which are 32 x 32 or 4 times as large; each of the 5 iterations
      // takes 4 n n m + 2 n n n FLOPs.
      const double flops = 2 * 5 * (4 * 6.0 + 2 * 18.0) * 32 * 32 * 32;
      EXPECT_NEAR(row["gflops_per_device"].get<double>() * ms * 2, 1e-6 * flops, 1e-9 * flops);
      EXPECT_EQ(row["steps_ms"].size(), 3U);
      EXPECT_EQ(row["exposed_communication_ms_by_rank"].size(), 2U);
      double shares = 0;
      for (const char* phase : {"update", "gemm", "communication"}) {
        EXPECT_GT(row["shares"][phase].get<double>(), 0) << phase;
        shares += row["shares"][phase].get<double>();
      }
      EXPECT_NEAR(shares, 1, 1e-9);
    }
    const nlohmann::json one =
        measured(options("optimizer", where + "--strategy stacked"), environment);
    ASSERT_EQ(one["strategies"].size(), 1U);
    EXPECT_EQ(one["strategies"][0]["strategy"], "stacked");
  }
  const Outcome table = run_program(options("optimizer", kHost));
  for (const std::string_view strategy : optim::strategy_names())
    EXPECT_THAT(table.out, HasSubstr(std::string(strategy)));
  EXPECT_THAT(table.out, HasSubstr("GFLOP/s"));
}

TEST(Bench, RefusesWhatItCannotMeasure) {
  EXPECT_THAT(run_program("bench").out, HasSubstr("muograph bench COMMAND --help"));
  const Outcome unknown = run_program("bench lunch");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("unknown subcommand 'lunch': expected step, launch, optimizer"));
  EXPECT_EQ(run_program(options("step", kHost + "--steps 0")).code, 2);
  EXPECT_THAT(run_program("bench step --help").out, HasSubstr("--steps N"));
  EXPECT_THAT(run_program("bench --help").out, HasSubstr("step|launch|optimizer"));
  EXPECT_EQ(run_program(options("optimizer", kHost + "--strategy most")).code, 2);
  EXPECT_EQ(run_program(options("step", kHost + "--strategy all")).code, 2);
}

}  // namespace
}  // namespace muo
