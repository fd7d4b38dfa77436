#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "app/train/update_sizes.h"
#include "kernels/metrics.h"

namespace muo::app {

// Lines of metrics.jsonl, without the new line. Valid JSON always: a number that is not finite is
// null, and then "nonfinite" is true; what is unknown (no text, no peak) is null without it.

// {"kind":"train","step":..,"tokens":..,"loss":..,"lr_multiplier":..,"muon_momentum":..,
//  "muon_weight_decay":..,"grad_norm":..,"step_ms":..,"tokens_per_s":..,"mfu":..}
// and, of a step that is not ordinary: "skipped":"nonfinite" or "outlier" if its update was not
// committed; "bad_number":".." if it is known what was not finite; "loss_deviations":.. and
// "norm_deviations":.. of an outlier; "gradient_scale":.. of one that was clipped.
// `tokens`: of the run, this step included. `mfu`: model FLOPs (flops_per_token) per second, as a
// fraction of the devices' peak: of a GPU as its maker states it, of a CPU as measured at the
// start. Masked pairs of attention count as computed, so that it can exceed what the devices did.
std::string train_line(const MetricsRecord& record, std::int64_t tokens, double step_ms,
                       double tokens_per_s, std::optional<double> mfu,
                       std::string_view bad_number = {});

// {"kind":"eval","step":..,"val_loss":..,"val_bpb":..}
std::string eval_line(std::int64_t step, double val_loss, std::optional<double> val_bpb);

// {"kind":"update","step":..,"matrices_rms":..,"matrices_ratio":..,"matrices_u_rms":..,
//  "wte_rms":..,"wte_ratio":..}
// and so on by group (update_sizes.h), u_rms of Muon's alone; a ratio to weights of 0 is null. Only
// of steps whose update was committed.
std::string update_line(const UpdateSizes& sizes);

// {"kind":"matrices","step":..,"layer_ratio":[..],"rms":{"transformer.h.0.attn.c_q.weight":..},
//  "ratio":{..},"u_rms":{..}}
std::string matrices_line(const UpdateSizes& sizes);

// {"kind":"alarm","step":..,"alarm":"throughput","text":".."}: alarms.h.
std::string alarm_line(std::int64_t step, std::string_view kind, std::string_view text);

// {"kind":"sample","step":..,"text":".."}; bytes of `text` that are no UTF-8 become U+FFFD.
std::string sample_line(std::int64_t step, std::string_view text);

}  // namespace muo::app
