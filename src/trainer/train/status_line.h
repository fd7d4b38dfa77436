#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muo::trainer {

struct TrainingProgress {
  std::int64_t done = 0;        // steps
  std::int64_t iterations = 0;  // of the whole run; 0: not known
  double time_budget = 0;       // seconds of the whole run; 0: its length is that of its steps
  double seconds = 0;           // of the budget that are spent
  double loss = 0;              // nats per token
  double bytes_per_token = 0;   // 0: unknown, so bits per byte are not shown
  double tokens_per_s = 0;
  double step_ms = 0;              // of the steps to come, for the remaining time
  std::optional<double> mfu = {};  // a fraction
  std::int64_t memory = 0;         // bytes; 0: unknown
};
// "step  120/1000  loss 2.3456  3.384 bits/byte  12.3k tokens/s  ETA 3m20s"
std::string progress_text(const TrainingProgress& progress);
// The same with a bar, MFU and memory, in fewer than `columns` columns: abbreviated if it is too
// long, and then without the least important parts.
std::string status_line(const TrainingProgress& progress, int columns, bool unicode);

}  // namespace muo::trainer
