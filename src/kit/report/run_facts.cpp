#include "kit/report/run_facts.h"

#include <nlohmann/json.hpp>

#include "base/durable_files.h"
#include "base/json_text.h"
#include "trainer/checkpoint/model_json.h"

namespace muo::kit {

void write_run_facts(const trainer::RunDirectory& directory, const PlanReport& report,
                     const trainer::DevicePeak& peak, const data::Corpus& corpus) {
  const trainer::RunConfig& run = report.run.config;
  nlohmann::ordered_json facts = {
      {"version", run.options.run.version},
      {"model", name_of(run.options.model.preset)},
      {"backend", name_of(*run.options.devices.backend)},
      {"bytes_per_token", run.bytes_per_token},
      {"peak_flops", peak.flops},
      {"tokenizer", corpus.tokenizer ? corpus.tokenizer_name.string() : "unknown"},
      {"data", nlohmann::json::parse(trainer::data_identity(corpus))}};
  facts.update(plan_object(report));
  replace_file(directory.facts(), json_text(facts, 2) + "\n");
}

}  // namespace muo::kit
