#pragma once

#include <memory>
#include <optional>

#include "app/checkpoint/checkpoint_saver.h"
#include "app/run/run_memory.h"
#include "app/run/tuning.h"
#include "app/train/evaluator.h"
#include "data/loader.h"
#include "data/token_data.h"
#include "graphs/run_state.h"

namespace muo::app {

// What a rank plans, allocates and captures once, and then trains with: one run, or any number of
// runs whose options differ in classes kHost and kMemory only (OptionClass), as those of a sweep.
class CapturedRank {
 public:
  // Everything given must outlive it.
  CapturedRank(RankContext& own, const PlannedRun& planned, const data::Corpus& corpus);

  // Warm-up and capture; allocates the rest, and seals the device. Every rank calls it, once.
  // `tuning` keeps what was measured; may be null.
  void capture(const data::Corpus& corpus, Tuning* tuning);
  // Before each run: its hyper-parameters, and every counter and all state at zero. Waits.
  void reset(const HyperParameters& hyper);

  [[nodiscard]] std::span<std::byte> slots() const {  // for a Loader of `loading`
    return {slots_->data(), static_cast<std::size_t>(slots_->bytes())};
  }

  RankContext& rank;
  const PlannedRun& run;
  PlannedArena arena;
  graphs::RunState state;
  Evaluator evaluator;
  data::LoaderOptions loading;
  std::unique_ptr<Event> copied;
  std::optional<CheckpointSaver::Staging> staging;  // none: training waits for the disk

 private:
  std::unique_ptr<Buffer> slots_;
};

}  // namespace muo::app
