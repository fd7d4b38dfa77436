#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muo::app {

struct TrainingProgress {
  std::int64_t done = 0;        // steps
  std::int64_t iterations = 0;  // of the run
  double loss = 0;              // nats per token
  double bytes_per_token = 0;   // 0: not a text, no bits per byte
  double tokens_per_s = 0;
  double step_ms = 0;              // for the time that is left
  std::optional<double> mfu = {};  // a fraction
  std::int64_t memory = 0;         // bytes; 0: unknown
};
// "step  120/1000  loss 2.3456  3.384 bits/byte  12.3k tokens/s  ETA 3m20s"
std::string progress_text(const TrainingProgress& progress);
// The same with a bar, MFU and memory, for a line of so many columns: where they are few it is
// briefer, and then what matters least is left out.
std::string status_line(const TrainingProgress& progress, int columns, bool unicode);

}  // namespace muo::app
