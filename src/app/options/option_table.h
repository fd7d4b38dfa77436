#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "app/options/option_row.h"
#include "app/options/options.h"

namespace muo::app {

// The tables of the commands, bound to the fields of `options`, with defaults in them.
std::vector<OptionRow> option_table(TrainOptions& options);
std::vector<OptionRow> option_table(EvalOptions& options);
std::vector<OptionRow> option_table(SampleOptions& options);
std::vector<OptionRow> option_table(ImportOptions& options);
std::vector<OptionRow> option_table(ExportOptions& options);
std::vector<OptionRow> option_table(PlanOptions& options);   // with those of train
std::vector<OptionRow> option_table(SweepOptions& options);  // with those of train that it takes
std::vector<OptionRow> option_table(InspectOptions& options);
std::vector<OptionRow> option_table(VerifyOptions& options);
std::vector<OptionRow> option_table(ReportOptions& options);
std::vector<OptionRow> option_table(TokenizeOptions& options);
std::vector<OptionRow> option_table(TrainTokenizerOptions& options);
std::vector<OptionRow> option_table(EncodeOptions& options);
std::vector<OptionRow> option_table(DecodeOptions& options);
std::vector<OptionRow> option_table(ConvertTokenizerOptions& options);

// --backend, --devices, --ranks-per-device, --comm.
std::vector<OptionRow> device_rows(DeviceOptions& options, OptionClass kind);

// What several tables share: bounds that keep every product of sizes in 64 bits (what a machine can
// hold is far below), and names of groups.
inline constexpr double kMostSteps = 1LL << 40;
inline constexpr double kMostTokens = 1LL << 40;
inline constexpr double kMostRows = 1 << 20;
inline constexpr std::string_view kDataGroup = "Data";
inline constexpr std::string_view kExamplesGroup = "Examples, instead of data";
inline constexpr std::string_view kDevicesGroup = "Devices";
inline constexpr std::string_view kSweepGroup = "Sweep";
inline constexpr std::string_view kRunGroup = "Run directory, evaluation, checkpoints";

// Of the options of a run those that --help shows; --help-all has all.
inline constexpr auto kUsualOptions = std::to_array<std::string_view>({"data",
                                                                       "val-data",
                                                                       "tokenizer",
                                                                       "depth",
                                                                       "n-embd",
                                                                       "n-head",
                                                                       "max-seq-len",
                                                                       "model",
                                                                       "device-batch-size",
                                                                       "total-batch-size",
                                                                       "num-iterations",
                                                                       "target-param-data-ratio",
                                                                       "matrix-lr",
                                                                       "embedding-lr",
                                                                       "unembedding-lr",
                                                                       "weight-decay",
                                                                       "warmup-steps",
                                                                       "warmdown-ratio",
                                                                       "max-grad-norm",
                                                                       "backend",
                                                                       "devices",
                                                                       "shard",
                                                                       "recompute",
                                                                       "memory-limit",
                                                                       "seed",
                                                                       "dtype",
                                                                       "out",
                                                                       "resume",
                                                                       "init-from",
                                                                       "eval-every",
                                                                       "save-every",
                                                                       "keep-last",
                                                                       "sample-every"});

}  // namespace muo::app
