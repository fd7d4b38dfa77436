#pragma once

#include <atomic>
#include <vector>

#include "app/checkpoint/checkpoint_saver.h"
#include "app/train/logger.h"
#include "app/train/run_config.h"
#include "data/token_data.h"
#include "optim/sharding_plan.h"
#include "runtime/device_group.h"

namespace muo {

// What the ranks of a training run share. Only rank 0 uses the logger.
struct TrainingRun {
  const RunConfig& config;
  const std::vector<ParamSpec>& params;
  const ShardingPlan& plan;
  const Corpus& corpus;
  CheckpointSaver& saver;
  const Checkpoint* resume = nullptr;     // null: from the start,
  const Checkpoint* init_from = nullptr;  // with these weights; null: with new ones
  bool lost_evaluation = false;           // of `resume`'s step: it is made up for
  Logger& logger;
  const std::atomic<int>& signal;  // a signal that asks the run to stop, or 0
  bool saves_in_background = true;

  // What all ranks agreed on between the last two steps.
  int stop = 0;  // the signal to stop for
  bool too_many_skipped = false;
  bool time_to_save = false;     // whatever the step
  bool long_evaluation = false;  // that the next one will be
  std::vector<SaveResult> ended_saves = {};
};

// One rank's training: builds its state, restores or initializes it, steps, evaluates, saves.
void train_rank(RankContext& rank, TrainingRun& run);

}  // namespace muo
