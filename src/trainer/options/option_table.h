#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "trainer/options/option_row.h"
#include "trainer/options/options.h"

namespace muo::trainer {

// The option tables of the commands, bound to the fields of `options`, which hold the defaults.
std::vector<OptionRow> option_table(TrainOptions& options);
std::vector<OptionRow> option_table(EvalOptions& options);
std::vector<OptionRow> option_table(SampleOptions& options);
std::vector<OptionRow> option_table(ImportOptions& options);
std::vector<OptionRow> option_table(ExportOptions& options);
std::vector<OptionRow> option_table(PlanOptions& options);   // includes those of train
std::vector<OptionRow> option_table(SweepOptions& options);  // includes most of train's
std::vector<OptionRow> option_table(InspectOptions& options);
std::vector<OptionRow> option_table(VerifyOptions& options);
std::vector<OptionRow> option_table(ReportOptions& options);
std::vector<OptionRow> option_table(CompareOptions& options);
std::vector<OptionRow> option_table(TimelineOptions& options);
std::vector<OptionRow> option_table(TokenizeOptions& options);
std::vector<OptionRow> option_table(TrainTokenizerOptions& options);
std::vector<OptionRow> option_table(EncodeOptions& options);
std::vector<OptionRow> option_table(DecodeOptions& options);
std::vector<OptionRow> option_table(ConvertTokenizerOptions& options);

// The rows of --backend, --devices, --ranks-per-device and --comm.
std::vector<OptionRow> device_rows(DeviceOptions& options, OptionClass kind);

// Shared by several tables: bounds that keep every product of sizes within 64 bits (far beyond what
// a machine can hold), and names of option groups.
inline constexpr double kMaxSteps = 1LL << 40;
inline constexpr double kMaxTokens = 1LL << 40;
inline constexpr double kMaxRows = 1 << 20;
inline constexpr std::string_view kDataGroup = "Data";
inline constexpr std::string_view kExamplesGroup = "Examples, instead of data";
inline constexpr std::string_view kDevicesGroup = "Devices";
inline constexpr std::string_view kSweepGroup = "Sweep";
inline constexpr std::string_view kRunGroup = "Run directory, evaluation, checkpoints";

// Options that --help shows for a run; --help-all shows all.
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

}  // namespace muo::trainer
