#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/step_scalars.h"
#include "optim/sharded_step.h"

namespace muo::test {

// Parameters of every kind and of awkward sizes, as in a small model: numbers of rows that no world
// divides, gates, and small vectors of several AdamW groups.
std::vector<ParamSpec> toy_params(int layers = 3, DType replica = DType::kF32);

// The gradient of row `row` of step `step` depends on nothing else; the gradient of a rank is the
// sum of its rows. 60 rows are divisible by 1 to 6 ranks, so every world sums the same rows.
inline constexpr int kToyRows = 60;

struct ToyRun {
  int world = 1;
  optim::ShardingPlan plan;
  std::vector<ParamSpec> params = {};
  int steps = 1;
  bool graph = true;
  std::optional<std::uint64_t> random_order_seed = {};
  // Moves every element of rank 0's gradients to a neighbouring float, up or down
  // depending on this seed.
  std::optional<std::uint64_t> perturb = {};
  // Puts an infinity into this rank's gradient of this parameter at this step.
  int bad_rank = -1;
  std::size_t bad_param = 0;
  std::int64_t bad_step = 0;
  // Makes the momentum of this matrix start with an infinity.
  std::string bad_momentum = {};
  Lifespan gradients = Lifespan::kStep;
  bool reads_too_early = false;  // reads weights before weight_needed()
  bool round_gradients = false;  // rounds gradients to bf16 before they are sent
  std::function<HyperParameters()> hyper = {};
};

struct ToyEntry {
  std::string name;
  Shape shape;
  std::int64_t begin = 0;
  std::vector<float> values;
  DType dtype = DType::kF32;
  bool writer = true;
};

struct ToyRank {
  std::vector<std::vector<float>> weights;  // the replica, by parameter
  std::vector<ToyEntry> state;
  // A checksum of each weight as the forward pass reads it, in each step, in order.
  std::vector<std::uint64_t> seen;
  StepScalars scalars;
  std::string bad_number;       // describe_value() of the last step's non-finite value; empty: none
  double squares = 0;           // squares of the last step's gradient
  std::int64_t sent_bytes = 0;  // counted by the communicator, in all steps, before the
                                // replicas left by the last step are published
  std::vector<std::vector<UpdateSquares>> updates;  // by step and parameter
  std::vector<std::int64_t> counts;                 // step and updates after each step, alternating
};

HyperParameters toy_hyper(
    const optim::OptimizerVersion* version = &optim::optimizer_versions().front());
std::vector<float> toy_weights(const ParamSpec& param);
// The sum of rows first, first + stride, and so on, in fp32. Zero for names that contain "zero"
// and, in the first step, for names that contain "late".
void toy_gradient(std::span<float> out, const std::string& name, std::int64_t step, int first,
                  int stride);

// Plans memory from a trace, then runs, starting from published weights (replicas are first filled
// with NaNs). Also checks for races and checks memory.
std::vector<ToyRank> run_toy(const ToyRun& run);

// Weights and state as bit patterns, so that NaN equals itself and -0 differs from 0.
std::vector<std::uint32_t> bits_of(const ToyRank& rank);
void expect_bitwise_equal(const std::vector<ToyRank>& got, const std::vector<ToyRank>& want,
                          const std::string& what);

// All parameters of the replica, concatenated.
std::vector<double> flat(const std::vector<std::vector<float>>& weights);

}  // namespace muo::test
