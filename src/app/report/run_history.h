#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muo::app {

// Numbers of a train record of metrics.jsonl (app/train/logger.h), by their keys.
inline constexpr std::array<std::string_view, 8> kSeriesNames = {
    "loss",      "lr_multiplier", "muon_momentum", "muon_weight_decay",
    "grad_norm", "step_ms",       "tokens_per_s",  "mfu"};
enum class Series : std::uint8_t {
  kLoss,
  kLrMultiplier,
  kMuonMomentum,
  kMuonWeightDecay,
  kGradNorm,
  kStepMs,
  kTokensPerS,
  kMfu
};

// What a run directory tells of its run, of which parts may be missing: a run that has just begun,
// one that was killed, or one of an older version.
struct RunHistory {
  struct Skip {
    std::int64_t step = 0;
    std::string why;         // nonfinite, outlier
    std::string bad_number;  // empty: not known
  };
  struct Alarm {
    std::int64_t step = 0;
    std::string kind, text;  // app/train/alarms.h
  };
  struct Sample {
    std::int64_t step = 0;
    std::string text;
  };

  std::filesystem::path directory;
  // config.toml: its text, and its options with values as text, in its order.
  std::string config;
  std::vector<std::pair<std::string, std::string>> options;
  std::string facts;  // the JSON object of run.json (run_facts.h), which parse_strict_json() takes;
                      // empty: none
  // Of facts: the data's tokenizer, and which data are held out. Empty: not known.
  std::string tokenizer, held_out;
  // Train records in the order of steps. Not finite: it was not, or is not known.
  std::vector<std::int64_t> step, tokens;
  std::array<std::vector<double>, kSeriesNames.size()> series;
  std::vector<Skip> skipped;              // steps whose update was not committed
  std::vector<std::int64_t> clipped;      // steps whose gradient was scaled down,
  std::vector<double> gradient_scale;     // and by what
  std::vector<std::int64_t> eval_step;    // evaluations
  std::vector<double> val_loss, val_bpb;  // not finite: was not, or is not known
  // How large updates were beside their weights (app/train/update_sizes.h), by group and, less
  // often, by layer. Not finite: not known.
  std::vector<std::int64_t> update_step, layers_step;
  std::vector<std::pair<std::string, std::vector<double>>> update_ratio;  // as long as update_step
  std::vector<std::vector<double>> layer_ratio;                           // of each layers_step
  std::vector<Sample> samples;
  std::vector<Alarm> alarms;
  std::vector<std::string> notes;  // a line for each thing that was there and could not be read

  [[nodiscard]] const std::vector<double>& of(Series which) const {
    return series.at(static_cast<std::size_t>(which));
  }
};

// Whether an option of `train` is about logging or saving, or says where files lie.
bool is_aside(std::string_view option);

// Takes run.json. False, and there are no facts: it is no JSON object.
bool take_facts(std::string json, RunHistory& history);

// Adds a line of metrics.jsonl, without its end. False: it is no record. Of records of the same
// step the last one counts, and those between are from an attempt that a resumed run repeated.
bool add_record(std::string_view line, RunHistory& history);

}  // namespace muo::app
