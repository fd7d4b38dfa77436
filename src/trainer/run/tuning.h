#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/run/run_config.h"

namespace muo::trainer {

// Selects the algorithms of GPU matrix products: from --gemm-table, from a file in the user's cache
// (--tune), or as the library proposes. The cache has one file per kind of GPU and version of the
// library, shared by concurrent runs: a writer keeps what others measured. If the cache cannot be
// read or written, a run only loses the time to measure.
class Tuning {
 public:
  // Must be constructed before the first product of the process.
  explicit Tuning(const RunConfig& config);
  // Saves what has been measured since the last call. May be called from any thread, but not
  // concurrently. Throws Error only for a --gemm-table.
  void keep();
  // Makes all processes compute each product with the algorithm of the lowest-numbered process that
  // has measured it; otherwise replicas of weights would drift apart. Collective; called between
  // the passes of the warm-up. `processes` may be null.
  void agree(ProcessGroup* processes);
  // Returns the notes since the last call.
  std::vector<std::string> take_notes();

 private:
  bool is_on_ = false;          // equal in all processes
  std::filesystem::path path_;  // empty: nothing is measured
  bool is_required_ = false;    // by --gemm-table
  std::vector<std::string> notes_;
};

// $XDG_CACHE_HOME/muograph or ~/.cache/muograph; empty if neither variable is set.
std::filesystem::path cache_folder();

// For `doctor`: the cache files and the number of products in each.
std::vector<std::string> describe_tuning();

}  // namespace muo::trainer
