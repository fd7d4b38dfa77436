#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/json_text.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "graphs/capture.h"
#include "kit/eval_examples.h"
#include "runtime/memory/memory_plan.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/checkpoint/run_tokenizer.h"
#include "trainer/infer/inference.h"
#include "trainer/run/backend.h"
#include "trainer/run/run_config.h"
#include "trainer/train/evaluator.h"

namespace muo::cli {
namespace {

// The text to evaluate: all of --data, or by default the held-out data of the run.
data::Corpus open_eval_corpus(const trainer::EvalOptions& options,
                              const trainer::Checkpoint& checkpoint) {
  data::DataOptions data = trainer::checkpoint_options(checkpoint).data;
  const std::filesystem::path tokenizer = trainer::find_run_tokenizer(checkpoint);
  if (!tokenizer.empty()) data.tokenizer = tokenizer;
  data.packing = options.packing.value_or(data.packing);
  if (!options.data.paths.empty()) {
    data.paths = options.data.paths;
    data.val_paths.clear();
    data.held_out_only = true;
    data.max_bytes = options.data.max_bytes;
  }
  data::Corpus corpus = data::open_corpus(data);
  trainer::require_same_tokenizer(checkpoint, corpus.tokenizer.get(), data.paths.front().native());
  return corpus;
}

}  // namespace

int run_command(const trainer::EvalOptions& options) {
  const trainer::Checkpoint checkpoint(options.checkpoint, {.weights_only = true});
  model::GptConfig config = trainer::checkpoint_model(checkpoint);
  config.dtype = options.dtype.value_or(config.dtype);
  if (options.examples.any()) return kit::evaluate_examples(options, checkpoint, std::move(config));
  const data::Corpus corpus = open_eval_corpus(options, checkpoint);
  if (corpus.vocab_size > config.vocab_size)
    throw trainer::input_error("--data: the vocabulary of {} tokens is larger than the model's {}",
                               corpus.vocab_size, config.vocab_size);
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  const data::HeldOutRows held_out(*corpus.val, corpus.val_documents.get(), config.seq_len);
  std::int64_t rows = held_out.size();
  if (options.tokens)
    rows = std::min(rows, (*options.tokens + config.seq_len - 1) / config.seq_len);
  trainer::DeviceOptions devices = options.devices;
  std::vector<std::string> notes;
  const GroupOptions ranks = trainer::choose_devices(devices, notes);
  std::FILE* const text_out = options.json ? stderr : stdout;
  trainer::warn_of_unused_gpus(options.devices.backend, ranks, text_out);
  if (options.data.paths.empty() && trainer::differs_from_data(checkpoint, corpus, "val_"))
    notes.push_back(
        fmt::format("warning: the held-out data differs from that of {}: it has changed",
                    checkpoint.path().string()));
  for (const std::string& note : notes)
    say(text_out, fmt::format("{}\n", note));
  const int world = ranks.world;
  const std::int64_t fitting = trainer::fit_eval_batch(config, params, rows, ranks);
  const std::int64_t batch =
      std::min(options.device_rows.value_or(fitting), (rows + world - 1) / world);
  model::check_pass(batch, config.seq_len);
  trainer::require_inference_memory(
      trainer::plan_inference_memory(config, params, {.eval = batch}, 0, world), ranks,
      fmt::format("--device-batch-size {}", batch), "give a smaller value");

  trainer::EvalResult result;
  DeviceGroup group(ranks);
  const auto evaluate = [&](RankContext& rank) {
    PlannedArena arena(rank.device, trainer::plan_inference_memory(config, params, {.eval = batch},
                                                                   rank.rank, world));
    trainer::InferenceState state(rank, config, params, {.eval = batch}, arena);
    graphs::warm_up_and_capture(rank, arena, state);
    trainer::Evaluator evaluator(rank, *state.eval, held_out, batch, config.seq_len, rows);
    state.load(checkpoint, corpus.token_bytes);
    const trainer::EvalResult mine = evaluator.run();
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

}  // namespace muo::cli
