#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_saver.h"
#include "trainer/run/pacing.h"

namespace muo::trainer {

// Decisions that one rank takes for all ranks between two steps.
struct Decisions {
  int stop = 0;  // stop signal, or 0
  bool ended_early = false;
  bool too_many_skipped = false;
  Pacing::Decision pacing = {};
  bool time_to_save = false;     // by --save-minutes
  bool long_evaluation = false;  // the next evaluation will be long: save before it
  bool last_is_slowest = false;  // of the recorded steps: see Timeline
  std::vector<SaveResult> ended_saves = {};
};

// Serialised by process 0 for the others.
std::string decisions_text(const Decisions& decisions);
Decisions decisions_of(const std::string& text);

}  // namespace muo::trainer
