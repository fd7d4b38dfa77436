#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/whole_run.h"

namespace muo::test {

inline constexpr std::int64_t kTrainingRows = 60;  // per step
inline constexpr std::int64_t kTrainingSeqLen = 12;

// A small training run with the real components (plan, memory plan, graphs, device group) on
// artificial data with learnable structure. The global batch is the same for every world
// that divides `rows`.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which tests name them
struct ToyTraining {
  int world = 1;
  std::string strategy = "balanced";
  std::string gather = "pipelined";
  std::string shard = "optimizer";
  std::string replicas = "own";
  bool graph = true;
  std::int64_t accumulation = 1;
  int steps = 20;
  model::Recompute recompute = {};
  std::optional<graphs::MicroSteps> micro_steps = {};  // form of the graph
  // By step: the number of micro-steps that it makes of `accumulation`; empty: all.
  std::vector<std::int64_t> ramp = {};
  bool timed = false;                 // see StepShape
  std::int64_t rows = kTrainingRows;  // per step
  bool nanochat_bf16 = false;  // all extras, bf16 wherever possible; else the plain model in fp32
  // Momentum and AdamW's moments in bf16, rounded stochastically, and split masters for bf16
  // weights. Gradients are sent in fp32, so that strategies do not differ in rounding.
  bool lean = false;
  bool bf16_gradients = false;  // of bf16 weights; else fp32, rounded when sent if nanochat_bf16
  bool gates = false;           // adds value embeddings, which have gates
  // See GptConfig. Each of the 61 tokens occurs in about a fifth of the rows.
  std::int32_t document_token = -1;
  // If not 0, every weight moves by one ulp, up or down, before each step, which models the
  // rounding of each step.
  std::uint64_t perturbation = 0;
  std::optional<std::uint64_t> random_order = {};
  bool nan_between_steps = false;  // see WholeRun
  bool interrupted = false;        // see WholeRun
  GroupOptions devices = {};       // only plugin, ranks_per_device and communicator are used
  // Called on every rank's thread before each step.
  std::function<void(RankContext&, graphs::RunState&, int step)> before_step = {};
};

using ToyCurves = RunCurves;

trainer::RunConfig toy_config(const ToyTraining& run);
ToyCurves train(const ToyTraining& run);

void expect_bitwise(const ToyCurves& got, const ToyCurves& want, const std::string& what);
// Compares runs by replay, eagerly, and in two random orders of the graphs' nodes (one order
// under sanitizers).
void expect_bitwise_in_every_form(ToyTraining run, const ToyCurves& want, const std::string& what);

// Bounds for runs that differ only in the order of rounding (decision derived-tolerances): 4 times
// the median distance from the unperturbed run of 8 runs that are perturbed by one ulp.
struct Agreement {
  double losses = 0;
  double weights = 0;  // relative, Frobenius
};
// The order of sums in the products of the other run: that of the host, or any order, as in a GPU's
// library. In the latter case, the products of the perturbed runs are summed in 8 other orders.
enum class SumsAre : std::uint8_t { kTheHosts, kInAnyOrder };
Agreement agreement(const ToyTraining& run, SumsAre sums = SumsAre::kTheHosts);

// The first steps of the plain model on one host rank, and the allowed distance from them. Both are
// computed once per process, because the control runs are slow.
const ToyCurves& toy_reference(int steps);
const Agreement& toy_bounds(int steps, SumsAre sums = SumsAre::kTheHosts);
void expect_toy_agreement(const ToyCurves& got, const std::string& what);
// The same for a device, whose library sums in an order of its own, and whose exp and log differ,
// but are within 2 ulp, like those of the host. Perturbed weights do not cover the errors of exp
// and log, which are the same in every row.
Agreement toy_device_bounds(int steps);
void expect_toy_device_agreement(const ToyCurves& got, const std::string& what);

}  // namespace muo::test
