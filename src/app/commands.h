#pragma once

#include "app/options/options.h"

namespace muo {

// What the commands of the program do, after parsing: each returns its exit code and throws
// InputError or Error.
int run_train(const TrainOptions& options);
int run_eval(const EvalOptions& options);
int run_sample(const SampleOptions& options);
// Prints parameters, ownership, memory and wire bytes of a run without running it. Without `data`,
// the vocabulary is --vocab-size, or the byte tokenizer's.
// Or prints all strategies side by side, or the articles' tables (article_tables.h).
int run_plan(const PlanOptions& options);
// Measures training steps of a run that `options` describe, on random tokens.
int run_bench(BenchKind kind, const TrainOptions& options, std::int64_t steps, ReportFormat format);
// What this machine has; `gpu_only`: of GPUs, and 3 if they cannot be used.
int run_doctor(bool gpu_only);
int run_import(const ImportOptions& options);
int run_export(const ExportOptions& options);
int run_inspect(const InspectOptions& options);
int run_verify(const VerifyOptions& options);

}  // namespace muo
