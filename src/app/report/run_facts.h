#pragma once

#include "app/checkpoint/run_directory.h"
#include "app/plan/plan_report.h"
#include "app/run/device_rates.h"
#include "data/token_data.h"

namespace muo::app {

// Writes run.json: what `muograph plan --json` says of the run, with what only its process knows:
//   "version"          the program's
//   "model"            --model
//   "backend"          of its devices: host, cuda
//   "bytes_per_token"  of the training text; 0: unknown
//   "peak_flops"       of all devices; 0: unknown
//   "tokenizer"        the data's, which need not be --tokenizer: shards name theirs
//   "data"             data_identity()
// A resumed run writes it anew. Throws Error.
void write_run_facts(const RunDirectory& directory, const PlanReport& report,
                     const DevicePeak& peak, const data::Corpus& corpus);

}  // namespace muo::app
