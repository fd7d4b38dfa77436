#include "trainer/train/resume.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/strict_json.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/checkpoint/run_tokenizer.h"
#include "trainer/options/option_table.h"

namespace muo::trainer {
namespace {

using nlohmann::json;

void require_same_model(std::string_view option, const Checkpoint& checkpoint,
                        const RunConfig& config, std::string_view otherwise) {
  const std::string difference = model_difference(checkpoint_model(checkpoint), config.model);
  if (!difference.empty())
    throw input_error("{}: {} holds another model: {}: give the options it was trained with{}",
                      option, checkpoint.path().string(), difference, otherwise);
}

// The options that changed, "matrix-lr 0.02, now 0.03": only those that determine what is trained
// (OptionRow::trains).
std::string changed_options(TrainOptions before, TrainOptions now) {
  const std::vector<OptionRow> old_rows = option_table(before);
  std::string out;
  for (const OptionRow& row : option_table(now)) {
    if (!row.trains) continue;
    const auto old = std::ranges::find(old_rows, row.name, &OptionRow::name);
    // A resolved option in a checkpoint is never "auto": this option was added after the run.
    if (option_text(*old) == "auto" && !std::holds_alternative<std::string*>(old->field)) continue;
    if (const std::string was = option_text(*old), is = option_text(row); was != is)
      out += fmt::format("{}{} {}, now {}", out.empty() ? "" : "; ", row.name, was, is);
  }
  return out;
}

// Throws unless the checkpoint is the newest of its run: continuing from an older one would leave
// newer checkpoints of another trajectory, which a later --resume auto would use.
void require_newest(const RunDirectory& directory, const Checkpoint& checkpoint) {
  if (checkpoint.path().parent_path() != directory.checkpoints()) return;
  const std::int64_t newest = find_checkpoints(directory.root).front().step;
  if (newest > checkpoint.info().step)
    throw input_error(
        "--resume: {} is not the newest of its run, which has reached step {}: give another --out "
        "to branch off, or remove the newer checkpoints",
        checkpoint.path().string(), newest);
}

// Calls take(record, step) for each record of the given kind, in the order of the file.
template <class Take>
void for_each_record(const std::filesystem::path& metrics, std::string_view kind,
                     const Take& take) {
  std::ifstream log(metrics);
  for (std::string line; std::getline(log, line);) {
    if (line.find(fmt::format("\"{}\"", kind)) == std::string::npos) continue;
    const json record = try_strict_json(line);
    if (record.is_object() && record.value("kind", json()) == kind && record.contains("step") &&
        record["step"].is_number_integer())
      take(record, record["step"].get<std::int64_t>());
  }
}

}  // namespace

std::optional<Checkpoint> find_resumed(const RunDirectory& directory, const std::string& resume,
                                       std::vector<std::string>& notes,
                                       const OpenCheckpoint& options) {
  if (directory.resume.empty()) return std::nullopt;
  if (resume == "auto") return newest_checkpoint(directory.root, notes, options);
  return std::optional<Checkpoint>(std::in_place, directory.resume, options);
}

std::optional<Checkpoint> open_resume(const RunDirectory& directory, RunConfig& config,
                                      const data::Corpus& corpus, std::vector<std::string>& notes) {
  std::optional<Checkpoint> checkpoint = find_resumed(directory, config.options.run.resume, notes);
  if (!checkpoint) return std::nullopt;
  const std::string name = checkpoint->path().string();
  if (!checkpoint->has_optimizer_state())
    throw input_error(
        "--resume: {} holds weights without optimizer state, as imported checkpoints do: "
        "training cannot resume from it; --init-from starts a new run with them",
        name);
  require_same_model("--resume", *checkpoint, config, ", or start a new run");
  const TrainOptions before = checkpoint_options(*checkpoint);
  if (before.optimizer.version != config.options.optimizer.version)
    throw input_error(
        "--resume: {} was trained with --optimizer-spec {}, not {}: give that, or start a new run",
        name, before.optimizer.version, config.options.optimizer.version);
  continue_from(config, trained_by(*checkpoint));
  const std::int64_t step = checkpoint->info().step;
  const LostWork lost = lost_work(directory, config, *checkpoint);
  if (step > config.iterations() ||
      (config.is_complete_at(step) && !lost.evaluation && !lost.sample))
    throw input_error(
        "--resume: {} is at step {}, and {}: nothing is left to train; give more {}", name, step,
        step < config.iterations() ? fmt::format("the --time-budget of {} is spent",
                                                 to_text(*config.options.batch.time_budget))
                                   : fmt::format("--num-iterations is {}", config.iterations()),
        step < config.iterations() ? "time" : "iterations");
  if (config.options.run.resume != "auto") require_newest(directory, *checkpoint);
  require_same_tokenizer(*checkpoint, corpus.tokenizer.get(), "--resume");
  if (differs_from_data(*checkpoint, corpus))
    notes.push_back(
        fmt::format("the data differs from that of {}: the run continues with the new data", name));
  if (const std::string changed = changed_options(before, config.resolved()); !changed.empty())
    notes.push_back(fmt::format("changed since {}: {}", name, changed));
  notes.push_back(fmt::format("resuming from {} at step {}", name, step));
  return checkpoint;
}

LostWork lost_work(const RunDirectory& directory, const RunConfig& config,
                   const Checkpoint& checkpoint) {
  if (checkpoint.path().parent_path() != directory.checkpoints()) return {};
  const std::int64_t step = checkpoint.info().step;
  const auto is_lost = [&](std::optional<std::int64_t> every, std::string_view kind) {
    bool lost = is_due(every, step) || (*every > 0 && config.is_complete_at(step));
    if (lost)
      for_each_record(directory.metrics(), kind,
                      [&](const json& /*record*/, std::int64_t at) { lost = lost && at != step; });
    return lost;
  };
  const EvaluationOptions& options = config.options.evaluation;
  return {.evaluation = is_lost(options.every, "eval"),
          .sample = is_lost(options.sample_every, "sample")};
}

std::vector<LoggedEvaluation> logged_evaluations(const std::filesystem::path& metrics) {
  std::vector<LoggedEvaluation> out;
  for_each_record(metrics, "eval", [&](const json& record, std::int64_t step) {
    const auto number = [&](const char* key, double otherwise) {
      const json value = record.value(key, json());
      return value.is_number() ? value.get<double>() : otherwise;
    };
    out.push_back(
        {.step = step,
         .result = {.loss = number("val_loss", std::nan("")), .bpb = number("val_bpb", -1)}});
  });
  return out;
}

std::shared_ptr<const Checkpoint> open_init_from(const RunConfig& config,
                                                 const data::Corpus& corpus,
                                                 std::vector<std::string>& notes) {
  if (config.options.run.init_from.empty()) return nullptr;
  auto checkpoint = std::make_shared<Checkpoint>(config.options.run.init_from,
                                                 OpenCheckpoint{.weights_only = true});
  require_same_model("--init-from", *checkpoint, config, "");
  require_same_tokenizer(*checkpoint, corpus.tokenizer.get(), "--init-from");
  notes.push_back(fmt::format("weights from {}, which was at step {}", checkpoint->path().string(),
                              checkpoint->info().step));
  return checkpoint;
}

}  // namespace muo::trainer
