#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muo::kit {

// Keys of the numbers in a train record of metrics.jsonl (trainer/train/logger.h).
inline constexpr std::array<std::string_view, 11> kSeriesNames = {
    "loss",         "lr_multiplier", "muon_momentum", "muon_weight_decay", "grad_norm", "step_ms",
    "tokens_per_s", "mfu",           "watts",         "clock_mhz",         "joules"};
enum class Series : std::uint8_t {
  kLoss,
  kLrMultiplier,
  kMuonMomentum,
  kMuonWeightDecay,
  kGradNorm,
  kStepMs,
  kTokensPerS,
  kMfu,
  kWatts,
  kClockMhz,
  kJoules
};

// The contents of a run directory. Parts may be missing if the run has just begun, was killed, or
// was written by an older version.
struct RunHistory {
  struct Skip {
    std::int64_t step = 0;
    std::string why;         // nonfinite, outlier
    std::string bad_number;  // the first non-finite value; empty: unknown
  };
  struct Alarm {
    std::int64_t step = 0;
    std::string kind, text;  // trainer/train/alarms.h
  };
  struct Sample {
    std::int64_t step = 0;
    std::string text;
  };

  std::filesystem::path directory;
  // config.toml: its text, and its options with their values as text, in the order of the file.
  std::string config;
  std::vector<std::pair<std::string, std::string>> options;
  // run.json (run_facts.h), a JSON object that parse_strict_json() accepts; empty: none.
  std::string facts;
  // From `facts`: the data's tokenizer and the identity of the held-out data. Empty if unknown.
  std::string tokenizer, held_out;
  // Train records in the order of steps. A number that was non-finite or is unknown is non-finite
  // here.
  std::vector<std::int64_t> step, tokens;
  std::array<std::vector<double>, kSeriesNames.size()> series;
  std::vector<Skip> skipped;              // steps whose update was not committed
  std::vector<std::int64_t> clipped;      // steps whose gradient was scaled down
  std::vector<double> gradient_scale;     // by `clipped`: the factor
  std::vector<std::int64_t> eval_step;    // steps of evaluations
  std::vector<double> val_loss, val_bpb;  // by `eval_step`; non-finite as above
  // RMS of updates relative to their weights (trainer/train/update_sizes.h), by group and, less
  // often, by layer. Non-finite if unknown.
  std::vector<std::int64_t> update_step, layers_step;
  std::vector<std::pair<std::string, std::vector<double>>> update_ratio;  // as long as update_step
  std::vector<std::vector<double>> layer_ratio;  // by `layers_step`, then by layer
  std::vector<Sample> samples;
  std::vector<Alarm> alarms;
  std::vector<std::string> notes;  // one line for each part that could not be read

  [[nodiscard]] const std::vector<double>& of(Series which) const {
    return series.at(static_cast<std::size_t>(which));
  }
};

// True if an option of `train` concerns logging, saving or paths of files.
bool is_bookkeeping(std::string_view option);

// Sets the facts from the text of run.json. Returns false and clears them if the text is not a JSON
// object.
bool set_facts(std::string json, RunHistory& history);

// Adds a line of metrics.jsonl, without its newline. Returns false if it is not a record. A record
// replaces those of the same and later steps, because a resumed run has repeated them.
bool add_record(std::string_view line, RunHistory& history);

}  // namespace muo::kit
