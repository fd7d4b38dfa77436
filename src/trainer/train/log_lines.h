#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/metrics.h"
#include "trainer/train/update_sizes.h"

namespace muo::trainer {

// Lines of metrics.jsonl, without the newline. They are always valid JSON: a non-finite number is
// null, with "nonfinite" true; an unknown number (no text, no peak) is null without "nonfinite".

// {"kind":"train","step":..,"tokens":..,"loss":..,"lr_multiplier":..,"muon_momentum":..,
//  "muon_weight_decay":..,"grad_norm":..,"step_ms":..,"tokens_per_s":..,"mfu":..,
//  "watts":..,"clock_mhz":..,"joules":..}
// The last three are there if the devices' driver reports their energy: means of a device over the
// last second or more, and the energy of this step on all devices.
// A step that is not ordinary also has "skipped":"nonfinite" or "outlier" if its update was not
// committed, "bad_number":".." if the non-finite value is known, "loss_deviations":.. and
// "norm_deviations":.. if it is an outlier, and "gradient_scale":.. if it was clipped.
// `tokens`: trained by the run, including this step. `mfu`: model FLOPs (flops_per_token) per
// second, as a fraction of the devices' peak, which is the maker's figure for a GPU and measured at
// the start for a CPU. Masked pairs of attention count as computed, so mfu can exceed the real
// utilization.
struct StepSpeed {
  double step_ms = 0, tokens_per_s = 0;
  std::optional<double> mfu = {};
  struct Power {
    double watts = 0, clock_mhz = 0, joules = 0;
  };
  std::optional<Power> power = {};
};
std::string train_line(const MetricsRecord& record, std::int64_t tokens, const StepSpeed& speed,
                       std::string_view bad_number = {});

// {"kind":"pace","step":..,"position":..,"per_step":..,"seconds":..}: with --time-budget, when the
// pace changes, after this many seconds of training, and where the run ends, with position 1.
std::string pace_line(const Pace& pace, double seconds);

// {"kind":"eval","step":..,"val_loss":..,"val_bpb":..}
std::string eval_line(std::int64_t step, double val_loss, std::optional<double> val_bpb);

// {"kind":"update","step":..,"matrices_rms":..,"matrices_ratio":..,"matrices_u_rms":..,
//  "wte_rms":..,"wte_ratio":..}
// and so on for each group (update_sizes.h). Only Muon's group has u_rms. A ratio to weights that
// are all 0 is null. Written only for steps whose update was committed.
std::string update_line(const UpdateSizes& sizes);

// {"kind":"matrices","step":..,"layer_ratio":[..],"rms":{"transformer.h.0.attn.c_q.weight":..},
//  "ratio":{..},"u_rms":{..}}
std::string matrices_line(const UpdateSizes& sizes);

// {"kind":"alarm","step":..,"alarm":"throughput","text":".."} (alarms.h)
std::string alarm_line(std::int64_t step, std::string_view kind, std::string_view text);

// {"kind":"sample","step":..,"text":".."}; bytes of `text` that are not UTF-8 become U+FFFD.
std::string sample_line(std::int64_t step, std::string_view text);

// Removes from metrics.jsonl the records that a run which starts at `step` writes again: a resumed
// run repeats the steps after its checkpoint. Throws WriteError.
void drop_records_from(const std::filesystem::path& file, std::int64_t step);

}  // namespace muo::trainer
