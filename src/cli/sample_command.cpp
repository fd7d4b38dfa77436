#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/result_file.h"
#include "data/tokenizer.h"
#include "graphs/capture.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/timeline.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/checkpoint/run_tokenizer.h"
#include "trainer/infer/inference.h"
#include "trainer/infer/sample_text.h"
#include "trainer/run/backend.h"

namespace muo::cli {
namespace {

// Number of samples decoded together.
constexpr std::int64_t kRows = 8;

// Reads a line, without a carriage return at its end.
bool read_line(std::istream& in, std::string& line) {
  if (!std::getline(in, line)) return false;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

std::vector<std::string> prompts_of(const trainer::SampleOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.prompt_file.empty()) {
    std::ifstream file(options.prompt_file);
    if (!file)
      throw trainer::input_error(
          "--prompt-file {}: cannot be read: give a text file with one prompt per "
          "line",
          options.prompt_file);
    const std::size_t before = prompts.size();
    for (std::string line; read_line(file, line);)
      if (!line.empty()) prompts.push_back(line);
    if (prompts.size() == before)
      throw trainer::input_error(
          "--prompt-file {}: has no line with text: give one prompt per line", options.prompt_file);
  }
  if (prompts.empty()) prompts.emplace_back();
  return prompts;
}

void show(const std::string& text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stdout));
  std::fflush(stdout);
}

// Prints samples in order: the first unfinished sample as it grows, and each later one from its
// turn on, beginning with the text that it has by then.
class Printer {
 public:
  Printer(const data::Tokenizer& tokenizer, std::span<const trainer::SampleRequest> requests,
          std::vector<std::string> headings, std::span<const std::string> stops) {
    for (std::size_t i = 0; i < requests.size(); ++i)
      samples_.push_back({.stream = trainer::SampleStream(tokenizer, requests[i].context, stops),
                          .waiting = std::move(headings[i])});
    print();
  }
  // Returns false if the sample has ended.
  bool add(std::size_t sample, std::int32_t token) {
    samples_[sample].waiting += samples_[sample].stream.add(token);
    print();
    return !samples_[sample].stream.stopped();
  }
  void end(std::size_t sample) {
    samples_[sample].waiting += samples_[sample].stream.finish() + "\n";
    samples_[sample].ended = true;
    print();
  }

 private:
  struct Sample {
    trainer::SampleStream stream;
    std::string waiting;
    bool ended = false;
  };
  void print() {
    for (; at_ < samples_.size(); ++at_) {
      show(std::exchange(samples_[at_].waiting, {}));
      if (!samples_[at_].ended) return;
    }
  }

  std::vector<Sample> samples_;
  std::size_t at_ = 0;
};

// Records the passes of a decoder for --timeline: a step up to each token of a first sample.
class RecordedTokens {
 public:
  RecordedTokens(Timeline& timeline, const graphs::Decoder& decoder)
      : timeline_(timeline), recorder_(0, decoder.graphs()) {
    next();
  }
  ~RecordedTokens() {
    timeline_.add(recorder_.take(timeline_.last_is_slowest()));
    timeline_.write();
  }
  RecordedTokens(const RecordedTokens&) = delete;
  RecordedTokens& operator=(const RecordedTokens&) = delete;
  void next() { recorder_.begin_step(token_++, timeline_.last_is_slowest()); }

 private:
  Timeline& timeline_;
  StepRecorder recorder_;
  std::int64_t token_ = 0;
};

// Draws and prints all samples of the given prompts. `recorded` may be null.
void sample_prompts(graphs::Decoder& decoder, const model::GptConfig& config,
                    const data::Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                    const trainer::SampleOptions& options, RecordedTokens* recorded) {
  std::vector<trainer::SampleRequest> requests;
  std::vector<std::string> headings;
  for (std::size_t p = 0; p < prompts.size(); ++p)
    for (std::int64_t i = 0; i < options.num_samples; ++i) {
      requests.push_back({.context = trainer::context_of(tokenizer, prompts[p]),
                          .seed = options.sampling.seed + static_cast<std::uint64_t>(i)});
      std::string heading;
      if (prompts.size() > 1 && options.num_samples > 1)
        heading = fmt::format("--- prompt {}, sample {}\n", p + 1, i + 1);
      else if (prompts.size() > 1)
        heading = fmt::format("--- prompt {}\n", p + 1);
      else if (options.num_samples > 1)
        heading = fmt::format("--- sample {}\n", i + 1);
      headings.push_back(heading + prompts[p]);
    }
  Printer printer(tokenizer, requests, std::move(headings), options.sampling.stops);
  trainer::sample_tokens(decoder, config, requests, options.sampling, *data::find_bos(tokenizer),
                         {.take =
                              [&](std::size_t sample, std::int32_t token) {
                                if (sample == 0 && recorded != nullptr) recorded->next();
                                return printer.add(sample, token);
                              },
                          .ended = [&](std::size_t sample) { printer.end(sample); }});
}

}  // namespace

int run_command(const trainer::SampleOptions& options) {
  const std::vector<std::string> prompts = prompts_of(options);
  const trainer::Checkpoint checkpoint(options.checkpoint, {.weights_only = true});
  model::GptConfig config = trainer::checkpoint_model(checkpoint);
  config.dtype = options.dtype.value_or(config.dtype);
  const std::shared_ptr<const data::Tokenizer> tokenizer = trainer::open_run_tokenizer(checkpoint);
  if (tokenizer == nullptr || tokenizer->vocab_size() > config.vocab_size)
    throw trainer::input_error(
        "{}: the tokenizer of its vocabulary of {} tokens is unknown: put its "
        "tokenizer.json or tokenizer.model into the run directory",
        checkpoint.path().string(), config.vocab_size);
  data::need_bos(*tokenizer, trainer::find_run_tokenizer(checkpoint));
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  trainer::DeviceOptions device{.backend = options.backend, .count = 1};
  std::vector<std::string> notes;  // not printed, because only the text matters
  GroupOptions ranks = trainer::choose_devices(device, notes);
  trainer::warn_of_unused_gpus(options.backend, ranks, stderr);
  if (options.interactive)
    ranks.watch.stuck_after = Timeouts::Time::zero();  // waiting for a prompt is not a failure
  // On a GPU the results depend on the number of rows, so it is constant there.
  const std::int64_t wanted = options.num_samples * static_cast<std::int64_t>(prompts.size());
  const trainer::InferenceRows rows{.sample =
                                        ranks.plugin != nullptr ? kRows : std::min(kRows, wanted)};
  const MemoryPlan memory = trainer::plan_inference_memory(config, params, rows, 0, 1);
  trainer::require_inference_memory(memory, ranks, checkpoint.path().string(),
                                    "give fewer samples, or use a machine with more memory");
  std::optional<Timeline> timeline;
  if (!options.timeline.empty()) {
    require_writable("--timeline", options.timeline);
    timeline.emplace(options.timeline, ranks);
  }
  DeviceGroup group(ranks);
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device, memory);
    trainer::InferenceState state(rank, config, params, rows, arena);
    graphs::warm_up_and_capture(rank, arena, state);
    state.load(checkpoint, {});
    if (options.logits > 0) {
      const std::vector<std::int32_t> context = trainer::context_of(*tokenizer, prompts.front());
      fmt::print("{}\n",
                 trainer::next_logits_json(*state.decoder, config, context, options.logits));
      return;
    }
    std::optional<RecordedTokens> recorded;
    if (timeline) recorded.emplace(*timeline, *state.decoder);
    const auto sample = [&](const std::vector<std::string>& of) {
      sample_prompts(*state.decoder, config, *tokenizer, of, options,
                     recorded ? &*recorded : nullptr);
    };
    if (!options.interactive) return sample(prompts);
    const bool asks = isatty(STDIN_FILENO) != 0;
    const auto ask = [&] {
      if (asks) show("> ");
    };
    ask();
    for (std::string line; read_line(std::cin, line); ask())
      sample({line});
    if (asks) show("\n");
  });
  if (timeline) say(stderr, timeline->note() + "\n");
  return 0;
}

}  // namespace muo::cli
