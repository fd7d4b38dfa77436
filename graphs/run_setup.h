#pragma once

#include "graphs/step_graph.h"
#include "kernels/step_scalars.h"
#include "model/gpt_config.h"

namespace muo::graphs {

// Configuration of a run's graphs.
struct RunSetup {
  model::GptConfig model;
  StepShape step;
  HyperParameters hyper;
  bool step_only = false;  // without evaluation and samples, and their tensors
};

}  // namespace muo::graphs
