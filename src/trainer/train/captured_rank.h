#pragma once

#include <memory>
#include <optional>

#include "data/loader.h"
#include "data/token_data.h"
#include "graphs/run_state.h"
#include "trainer/checkpoint/checkpoint_saver.h"
#include "trainer/run/run_memory.h"
#include "trainer/run/tuning.h"
#include "trainer/train/evaluator.h"

namespace muo::trainer {

// Everything that a rank plans, allocates and captures once and then trains with: for one run, or
// for any number of runs whose options differ only in classes kHost and kMemory (OptionClass), such
// as the trials of a sweep.
class CapturedRank {
 public:
  // The arguments must outlive this object.
  CapturedRank(RankContext& own, const PlannedRun& planned, const data::Corpus& corpus);

  // Warms up and captures, allocates the rest, and seals the device. Collective: every rank calls
  // it once. `tuning` keeps the measured algorithms, and may be null.
  void capture(const data::Corpus& corpus, Tuning* tuning);
  // Call this before each run: sets the run's hyper-parameters and zeroes all counters and state.
  // Synchronizes.
  void reset(const HyperParameters& hyper);

  // Memory for a Loader with the options `loading`.
  [[nodiscard]] std::span<std::byte> slots() const {
    return {slots_->data(), static_cast<std::size_t>(slots_->bytes())};
  }

  RankContext& rank;
  const PlannedRun& run;
  PlannedArena arena;
  graphs::RunState state;
  Evaluator evaluator;
  data::LoaderOptions loading;
  std::unique_ptr<Event> copied;
  std::optional<CheckpointSaver::Staging> staging;  // none: training waits for saves

 private:
  std::unique_ptr<Buffer> slots_;
};

}  // namespace muo::trainer
