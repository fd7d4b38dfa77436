#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muo::kit {

// Progress lines of the commands other than `train`.

struct TokenizeProgress {
  std::int64_t tokens = 0, shards = 0;  // so far
  std::int64_t input_bytes = 0;         // total of all files; 0: unknown
  std::int64_t taken = 0;               // input bytes read so far, including earlier runs
  std::int64_t held = 0;        // part of `taken` that an interrupted run has already encoded
  std::int64_t text_bytes = 0;  // bytes of text encoded by this run
  double seconds = 0;           // time spent encoding them
};
// " 25 %  12.3M tokens, 2 shards, 31.4 MB/s of text  ETA 3m20s"
std::string progress_text(const TokenizeProgress& progress);

struct ExampleProgress {
  std::string_view task;
  std::int64_t done = 0, rows = 0;  // rows of all tasks
  double seconds = 0;
};
// " 25 %  hellaswag_zeroshot  210 rows/s  ETA 3m20s"
std::string progress_text(const ExampleProgress& progress);

}  // namespace muo::kit
