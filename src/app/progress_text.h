#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muo::app {

// What a command other than `train` shows while it works: a line.

struct TokenizeProgress {
  std::int64_t tokens = 0, shards = 0;  // so far
  std::int64_t input_bytes = 0;         // of all files; 0: unknown
  std::int64_t taken = 0;               // of them
  std::int64_t held = 0;                // of those taken, encoded by an interrupted run
  std::int64_t text_bytes = 0;          // encoded by this one, in so many seconds
  double seconds = 0;
};
// " 25 %  12.3M tokens, 2 shards, 31.4 MB/s of text  ETA 3m20s"
std::string progress_text(const TokenizeProgress& progress);

struct ExampleProgress {
  std::string_view task;
  std::int64_t done = 0, rows = 0;  // of all tasks
  double seconds = 0;
};
// " 25 %  hellaswag_zeroshot  210 rows/s  ETA 3m20s"
std::string progress_text(const ExampleProgress& progress);

}  // namespace muo::app
