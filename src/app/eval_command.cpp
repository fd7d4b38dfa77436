#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "app/checkpoint/model_json.h"
#include "app/checkpoint/run_tokenizer.h"
#include "app/cli.h"
#include "app/eval_examples.h"
#include "app/infer/inference.h"
#include "app/run/backend.h"
#include "app/run/run_config.h"
#include "app/train/evaluator.h"
#include "base/json_text.h"
#include "base/terminal.h"
#include "graphs/capture.h"
#include "runtime/memory/memory_plan.h"

namespace muo::app {
namespace {

// The text to evaluate: all of --data, or without it what the run held out.
data::Corpus open_eval_corpus(const EvalOptions& options, const Checkpoint& checkpoint) {
  data::DataOptions data = checkpoint_options(checkpoint).data;
  const std::filesystem::path tokenizer = find_run_tokenizer(checkpoint);
  if (!tokenizer.empty()) data.tokenizer = tokenizer;
  data.packing = options.packing.value_or(data.packing);
  if (!options.data.paths.empty()) {
    data.paths = options.data.paths;
    data.val_paths.clear();
    data.held_out_only = true;
    data.max_bytes = options.data.max_bytes;
  }
  data::Corpus corpus = data::open_corpus(data);
  require_same_tokenizer(checkpoint, corpus.tokenizer.get(), data.paths.front().native());
  return corpus;
}

}  // namespace

int run_command(const EvalOptions& options) {
  const Checkpoint checkpoint(options.checkpoint, {.weights_only = true});
  model::GptConfig config = checkpoint_model(checkpoint);
  config.dtype = options.dtype.value_or(config.dtype);
  if (options.examples.any()) return evaluate_examples(options, checkpoint, std::move(config));
  const data::Corpus corpus = open_eval_corpus(options, checkpoint);
  if (corpus.vocab_size > config.vocab_size)
    throw input_error("--data: its vocabulary of {} tokens is larger than the model's {}",
                      corpus.vocab_size, config.vocab_size);
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  const data::HeldOutRows held_out(*corpus.val, corpus.val_documents.get(), config.seq_len);
  std::int64_t rows = held_out.size();
  if (options.tokens)
    rows = std::min(rows, (*options.tokens + config.seq_len - 1) / config.seq_len);
  DeviceOptions devices = options.devices;
  std::vector<std::string> notes;
  const GroupOptions ranks = choose_devices(devices, notes);
  std::FILE* const says = options.json ? stderr : stdout;
  warn_of_unused_gpus(options.devices.backend, ranks, says);
  if (options.data.paths.empty() && differs_from_data(checkpoint, corpus, "val_"))
    notes.push_back(fmt::format("warning: this is not the text that {} held out: it has changed",
                                checkpoint.path().string()));
  for (const std::string& note : notes)
    say(says, fmt::format("{}\n", note));
  const int world = ranks.world;
  const std::int64_t fitting = fit_eval_batch(config, params, rows, ranks);
  const std::int64_t batch =
      std::min(options.device_rows.value_or(fitting), (rows + world - 1) / world);
  model::check_pass(batch, config.seq_len);
  require_inference_memory(plan_inference_memory(config, params, {.eval = batch}, 0, world), ranks,
                           fmt::format("--device-batch-size {}", batch), "give a smaller one");

  EvalResult result;
  DeviceGroup group(ranks);
  const auto evaluate = [&](RankContext& rank) {
    PlannedArena arena(rank.device,
                       plan_inference_memory(config, params, {.eval = batch}, rank.rank, world));
    InferenceState state(rank, config, params, {.eval = batch}, arena);
    graphs::warm_up_and_capture(rank, arena, state);
    Evaluator evaluator(rank, *state.eval, held_out, batch, config.seq_len, rows);
    state.load(checkpoint, corpus.token_bytes);
    const EvalResult mine = evaluator.run();
    if (rank.rank == 0) result = mine;
  };
  waiting("evaluating", [&] {
    group.run(evaluate);
    return 0;
  });
  if (options.json) {
    nlohmann::ordered_json out = {{"checkpoint", checkpoint.path().string()},
                                  {"step", checkpoint.info().step},
                                  {"tokens", result.targets},
                                  {"val_loss", result.loss}};
    out["val_bpb"] = result.bpb < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(result.bpb);
    fmt::print("{}\n", json_text(out));
    return 0;
  }
  say(stdout, fmt::format("{}\n{}: step {}, val_loss {:.6f}{}, of {} tokens\n", corpus.description,
                          checkpoint.path().string(), checkpoint.info().step, result.loss,
                          result.bpb < 0 ? "" : fmt::format(", val_bpb {:.6f}", result.bpb),
                          result.targets));
  return 0;
}

}  // namespace muo::app
