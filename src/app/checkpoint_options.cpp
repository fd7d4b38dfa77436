#include <string>
#include <vector>

#include "app/option_table.h"

namespace muo {
namespace {

constexpr std::string_view kFiles = "Files";

OptionRow newest_row(std::string& field) {
  return {.name = "checkpoint",
          .group = kFiles,
          .value = "DIR",
          .help = "a checkpoint, or a run directory (its newest)",
          .field = &field,
          .required = true};
}

}  // namespace

std::vector<OptionRow> option_table(InspectOptions& o) { return {newest_row(o.checkpoint)}; }

std::vector<OptionRow> option_table(VerifyOptions& o) {
  OptionRow row = newest_row(o.checkpoint);
  row.help = "a checkpoint, or a run directory (all of it)";
  return {row};
}

std::vector<OptionRow> option_table(ImportOptions& o) {
  return {
      {.name = "model",
       .group = kFiles,
       .value = "FILE",
       .help = "model_000123.safetensors, as scripts/convert_nanochat.py makes it",
       .field = &o.model,
       .required = true},
      {"meta", kFiles, "FILE", "auto: meta_000123.json beside the model", &o.meta},
      {.name = "out",
       .group = kFiles,
       .value = "DIR",
       .help = "run directory that gets the checkpoint",
       .field = &o.out,
       .required = true},
  };
}

std::vector<OptionRow> option_table(ExportOptions& o) {
  return {
      newest_row(o.checkpoint),
      {.name = "out",
       .group = kFiles,
       .value = "DIR",
       .help = "where model_000123.safetensors and meta_000123.json go",
       .field = &o.out,
       .required = true},
  };
}

}  // namespace muo
