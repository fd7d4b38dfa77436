#pragma once

#include "data/token_data.h"
#include "kit/plan/plan_report.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/run/device_rates.h"

namespace muo::kit {

// Writes run.json: the output of `muograph plan --json` for the run, and these fields:
//   "version"          the program's version
//   "model"            --model
//   "backend"          host or cuda
//   "bytes_per_token"  mean of the training text; 0: unknown
//   "peak_flops"       FLOP/s of all devices; 0: unknown
//   "tokenizer"        the data's tokenizer, which shards name, else --tokenizer
//   "data"             data_identity()
// A resumed run replaces the file. Throws Error.
void write_run_facts(const trainer::RunDirectory& directory, const PlanReport& report,
                     const trainer::DevicePeak& peak, const data::Corpus& corpus);

}  // namespace muo::kit
