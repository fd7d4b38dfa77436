#include <fmt/format.h>

#include <cstdio>

#include "app/checkpoint/model_json.h"
#include "app/cli.h"
#include "app/train/backend.h"
#include "app/train/inference.h"
#include "app/train/sample_text.h"
#include "data/token_data.h"
#include "graphs/capture.h"
#include "runtime/memory/memory_plan.h"

namespace muo {

int run_command(const SampleOptions& options) {
  const Checkpoint checkpoint(options.checkpoint, {.weights_only = true});
  GptConfig config = checkpoint_model(checkpoint);
  config.dtype = options.dtype.value_or(config.dtype);
  if (config.vocab_size != kByteVocab)
    throw input_error(
        "{}: its vocabulary of {} tokens is not the byte tokenizer's {}: "
        "there is no tokenizer to print samples with",
        checkpoint.path().string(), config.vocab_size, kByteVocab);
  const std::vector<ParamSpec> params = gpt_parameters(config);
  DeviceOptions device{.backend = options.backend, .count = 1};
  std::vector<std::string> notes;  // of no interest beside the text
  const GroupOptions ranks = choose_devices(device, notes);
  warn_of_unused_gpus(options.backend, ranks, stderr);
  DeviceGroup group(ranks);
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device, plan_inference_memory(config, params, {.sample = 1}, 0, 1));
    InferenceState state(rank, config, params, {.sample = 1}, arena);
    warm_up_and_capture(rank, arena, state);
    state.load(checkpoint, {});
    for (std::int64_t i = 0; i < options.num_samples; ++i) {
      SamplingOptions sampling = options.sampling;
      sampling.seed += static_cast<std::uint64_t>(i);
      const std::string text = sample_text(*state.decoder, config, options.prompt, sampling);
      if (options.num_samples > 1) fmt::print("--- sample {}\n", i + 1);
      fmt::print("{}{}\n", options.prompt, text);
      std::fflush(stdout);
    }
  });
  return 0;
}

}  // namespace muo
