#pragma once

#include "graphs/step_graph.h"
#include "kernels/step_scalars.h"
#include "model/gpt_config.h"

namespace muo::graphs {

// What the graphs of a run are made of.
struct RunSetup {
  model::GptConfig model;
  StepShape step;
  HyperParameters hyper;
  bool step_only = false;  // no evaluation and no samples: nothing is made for them
};

}  // namespace muo::graphs
