#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/options/options.h"

namespace muo::kit {

// The deepest model (by --depth, which sets the width) that fits into memory with one combination
// of sharding and recomputation.
struct LargestModel {
  optim::Shard shard = optim::Shard::kNone;
  model::Recomputed recompute = model::Recomputed::kNone;
  std::int64_t depth = 0;  // 0: not even one layer fits
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;  // planned tensors of a device
  double extra_time = 0;   // share of FLOPs that recomputation adds
};

// Result of `plan --largest`.
struct LargestModels {
  std::int64_t memory = 0;  // bytes per device
  bool is_of_this_machine = false;
  std::int64_t available = 0;  // bytes per device for planned tensors
  int devices = 1;
  bool host = false;
  std::int64_t rows = 1;  // per device and micro-step
  std::int64_t vocabulary = 0;
  std::string dtype;
  std::vector<LargestModel> models;
  std::vector<std::string> notes;
};

// Finds the deepest model for every combination of sharding and recomputation, by a search over
// plans, with the other options as given and --device-batch-size rows (default 1). options.memory
// is the memory of each device, including kLibraryMemory and kContextMemory on a GPU, and the
// device's part of process_base() on the host. Without memory and GPU, the devices are those of
// this machine. Otherwise the devices are GPUs, unless --backend host is given. These need not
// exist: they are planned on the host, with a replica per GPU, and with the scratch memory of the
// host's attention. Throws InputError if the options leave nothing to search.
LargestModels find_largest_models(const trainer::PlanOptions& options);

// Formats the models as a table, without rows for which a row with less sharding and no more
// recomputation is at least as deep.
std::string largest_table(const LargestModels& found);
std::string largest_json(const LargestModels& found);

}  // namespace muo::kit
