#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/run/run_config.h"

namespace muo::app {

// How products of GPUs are chosen: by --gemm-table, by a file of the user's cache (--tune), or as
// the library proposes. The cache has a file for each kind of GPU and version of the library, which
// concurrent runs share: who writes keeps what others measured. A cache that cannot be read or
// written costs a run the time to measure, and nothing else.
class Tuning {
 public:
  // Before the first product of the process.
  explicit Tuning(const RunConfig& config);
  // Writes down what has been measured since. From any thread, by one at a time. Throws Error of a
  // --gemm-table only.
  void keep();
  // Between the passes of the warm-up, in every process: from now on all compute a product as the
  // first one that has measured it does. Without this the replicas of weights would drift apart.
  void agree(ProcessGroup* processes);
  // What there is to tell; empties the list.
  std::vector<std::string> take_notes();

 private:
  bool is_on_ = false;          // the same in all processes
  std::filesystem::path path_;  // empty: nothing is measured
  bool must_ = false;           // --gemm-table
  std::vector<std::string> notes_;
};

// $XDG_CACHE_HOME/muograph or ~/.cache/muograph; empty if neither variable is set.
std::filesystem::path cache_folder();

// For `doctor`: the files of the cache, and how many products each knows.
std::vector<std::string> describe_tuning();

}  // namespace muo::app
