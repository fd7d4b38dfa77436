#include "graphs/step_phases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>

#include "graphs/run_state.h"
#include "support/toy_training.h"

// The table of phases that a step records.
namespace muo::graphs {
namespace {

using test::ToyTraining;

constexpr int kSteps = 3;

// The last rank's clock after kSteps steps.
PhaseClock clock_after_steps(ToyTraining run) {
  PhaseClock result;
  run.timed = true;
  run.steps = kSteps + 1;
  run.before_step = [&](RankContext& rank, RunState& state, int step) {
    auto* clock = state.step.clock().as_struct<PhaseClock>();
    if (step == 0) *clock = {};
    if (step == kSteps && rank.rank == rank.world - 1) result = *clock;
  };
  test::train(run);
  return result;
}

TEST(StepPhases, WaitsForWeightsAreTimedAsGathers) {
  for (const int world : {1, 2}) {
    const PhaseClock simple = clock_after_steps({.world = world, .gather = "simple"});
    const PhaseClock clock = clock_after_steps({.world = world});
    const auto more = [&](StepPhase phase) {
      const auto i = static_cast<std::size_t>(phase);
      return clock.marks[i] - simple.marks[i];
    };
    const auto waits = more(StepPhase::kGather);
    if (world == 1)
      EXPECT_EQ(waits, 0);
    else
      EXPECT_GE(waits, kSteps * 3);  // wte, matrices, lm_head
    EXPECT_EQ(waits % kSteps, 0);
    EXPECT_EQ(more(StepPhase::kForward), waits);  // forward continues after each
    for (const StepPhase phase : {StepPhase::kBegin, StepPhase::kLosses, StepPhase::kBackward,
                                  StepPhase::kUpdate, StepPhase::kBetween})
      EXPECT_EQ(more(phase), 0);
  }
}

TEST(StepPhases, EveryPhaseIsTimedAsOftenAsItHappens) {
  struct Case {
    std::int64_t accumulation;
    int graphs;
    MicroSteps form = MicroSteps::kUnrolled;
  };
  for (const bool graph : {true, false})
    for (const auto& [accumulation, graphs, form] :
         {Case{1, 1}, Case{3, 1}, Case{10, 2}, Case{10, 1, MicroSteps::kLoop}}) {
      const std::string what = std::string(graph ? "graph" : "eager") + ", accumulation " +
                               std::to_string(accumulation) + ", " + std::string(name_of(form));
      const PhaseClock clock = clock_after_steps({.world = 2,
                                                  .gather = "simple",
                                                  .graph = graph,
                                                  .accumulation = accumulation,
                                                  .micro_steps = form});
      const auto marks = [&](StepPhase phase) { return clock.marks[static_cast<int>(phase)]; };
      // The first one starts the clock.
      EXPECT_EQ(marks(StepPhase::kBetween), kSteps * graphs - 1) << what;
      for (const StepPhase phase : {StepPhase::kBegin, StepPhase::kUpdate, StepPhase::kGather})
        EXPECT_EQ(marks(phase), kSteps) << what;
      for (const StepPhase phase : {StepPhase::kForward, StepPhase::kLosses, StepPhase::kBackward})
        EXPECT_EQ(marks(phase), kSteps * accumulation) << what;
      for (std::size_t i = 0; i < kStepPhases.size(); ++i)
        EXPECT_GT(clock.elapsed[i], 0) << what << ", " << kStepPhases[i];
      EXPECT_EQ(clock.marks[kStepPhases.size()], 0) << what;
    }
}

TEST(StepPhases, TimingChangesNoNumber) {
  ToyTraining run{.world = 2, .accumulation = 2, .steps = 4};
  const test::ToyCurves plain = test::train(run);
  run.timed = true;
  const test::ToyCurves timed = test::train(run);
  EXPECT_EQ(timed.losses, plain.losses);
  EXPECT_EQ(timed.weights, plain.weights);
}

TEST(StepPhases, WithoutTimingThereIsNoClock) {
  ToyTraining run{.steps = 1};
  run.before_step = [](RankContext& /*rank*/, RunState& state, int /*step*/) {
    EXPECT_FALSE(state.step.clock());
  };
  test::train(run);
}

}  // namespace
}  // namespace muo::graphs
