#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/options/options.h"

namespace muo::app {

// The deepest model (--depth, whose width follows) that trains in one way.
struct LargestModel {
  optim::Shard shard = optim::Shard::kNone;
  model::Recomputed recompute = model::Recomputed::kNone;
  std::int64_t depth = 0;  // 0: not even one layer fits
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;  // of a device's planned tensors
  double extra_time = 0;   // of recomputation, predicted by FLOPs
};

// What `plan --largest` says.
struct LargestModels {
  std::int64_t memory = 0;  // of a device
  bool is_of_this_machine = false;
  std::int64_t available = 0;  // of it, for planned tensors
  int devices = 1;
  bool host = false;
  std::int64_t rows = 1;  // of a device and micro-step
  std::int64_t vocabulary = 0;
  std::string dtype;
  std::vector<LargestModel> models;
  std::vector<std::string> notes;
};

// For every way of sharding and of recomputation, with the other options as given:
// rows of --device-batch-size, or 1. options.memory is what each device has; of a GPU
// kLibraryMemory and kContextMemory are in it, of the host its part of process_base(). With neither
// memory nor a GPU, the devices are this machine's. GPUs, which are meant otherwise unless
// --backend host is given, need not be here: they are planned on the host, with replicas of their
// own, and the host's scratch of attention. Found by bisection over plans. Throws InputError if
// options leave nothing to search.
LargestModels find_largest_models(const PlanOptions& options);

// Without the rows that are no deeper than another that recomputes no more and shards less.
std::string largest_table(const LargestModels& found);
std::string largest_json(const LargestModels& found);

}  // namespace muo::app
