#pragma once

#include <string>
#include <vector>

#include "app/checkpoint/checkpoint_saver.h"

namespace muo::app {

// What all ranks do next: decided between two steps, by one of them for all.
struct Decisions {
  int stop = 0;  // the signal to stop for
  bool ended_early = false;
  bool too_many_skipped = false;
  bool time_to_save = false;     // whatever the step
  bool long_evaluation = false;  // that the next one will be
  std::vector<SaveResult> ended_saves = {};
};

// On their way from process 0 to the others.
std::string decisions_text(const Decisions& decisions);
Decisions decisions_of(const std::string& text);

}  // namespace muo::app
