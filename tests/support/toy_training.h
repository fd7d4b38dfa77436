#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "support/whole_run.h"

namespace muo::test {

inline constexpr std::int64_t kTrainingRows = 60;  // per step
inline constexpr std::int64_t kTrainingSeqLen = 12;

// A small training run through the real parts (plan, memory plan, graphs, device group) on made-up
// data with structure to learn. The global batch is the same for every world that divides `rows`.
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
  bool timed = false;                 // see StepShape
  std::int64_t rows = kTrainingRows;  // per step
  bool nanochat_bf16 = false;  // all extras, bf16 wherever it can be; else the plain model in fp32
  // Momentum and AdamW's moments in bf16, rounded stochastically, and split masters where weights
  // are bf16; gradients travel in fp32, so that strategies do not differ in what they round.
  bool lean = false;
  bool bf16_gradients =
      false;           // of weights of bf16; else fp32, rounded on their way if nanochat_bf16
  bool gates = false;  // with value embeddings, which have gates
  std::int32_t document_token = -1;  // GptConfig's: of 61, each in about a fifth of the rows
  // Not 0: before each step, as rounding differs in each, every weight moves by one ulp, up or
  // down.
  std::uint64_t perturbation = 0;
  std::optional<std::uint64_t> random_order = {};
  bool nan_between_steps = false;  // see WholeRun
  bool interrupted = false;        // see WholeRun
  GroupOptions devices = {};       // plugin, ranks_per_device and communicator count
  // Called on every rank's thread, before each step.
  std::function<void(RankContext&, graphs::RunState&, int step)> before_step = {};
};

using ToyCurves = RunCurves;

app::RunConfig toy_config(const ToyTraining& run);
ToyCurves train(const ToyTraining& run);

void expect_bitwise(const ToyCurves& got, const ToyCurves& want, const std::string& what);
// By replay, eagerly, and in two random orders of the graphs' nodes (one under sanitizers).
void expect_bitwise_in_every_form(ToyTraining run, const ToyCurves& want, const std::string& what);

// What agreement means where only the order of rounding differs (decision derived-tolerances): 4
// times the median distance of 8 runs, perturbed by one ulp, from the unperturbed one.
struct Agreement {
  double losses = 0;
  double weights = 0;  // relative, Frobenius
};
// Whether the other side's products add their terms as the host's do, or may in any order, as those
// of a GPU's library: then products of the perturbed runs are summed in 8 other orders.
enum class SumsAre : std::uint8_t { kTheHosts, kInAnyOrder };
Agreement agreement(const ToyTraining& run, SumsAre sums = SumsAre::kTheHosts);

// The first steps of the plain model on one host rank, and how far others may be from them. Both
// are made once in a process, as the control runs are slow.
const ToyCurves& toy_reference(int steps);
const Agreement& toy_bounds(int steps, SumsAre sums = SumsAre::kTheHosts);
void expect_toy_agreement(const ToyCurves& got, const std::string& what);
// The same of a device, whose library adds up in an order of its own, and whose exp and log are
// others, but within 2 ulp, as the host's are. Perturbed weights say nothing of these, as they are
// the same in every row.
Agreement toy_device_bounds(int steps);
void expect_toy_device_agreement(const ToyCurves& got, const std::string& what);

}  // namespace muo::test
