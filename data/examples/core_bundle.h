#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/enum_names.h"

namespace muo::data {

// The tasks of DCLM's CORE metric (Li et al. 2024, https://arxiv.org/abs/2406.11794) in nanochat's
// format: a folder with core.yaml, eval_meta_data.csv and eval_data/.

// multiple_choice: one query, several choices. schema: several contexts, one continuation.
// language_modeling: one context, one continuation.
enum class CoreType : std::uint8_t { kMultipleChoice, kSchema, kLanguageModeling };
constexpr auto names_of(CoreType) {
  return name_list("multiple_choice", "schema", "language_modeling");
}

struct CoreItem {
  std::vector<std::string> contexts;       // several for a schema, else one
  std::vector<std::string> continuations;  // several for multiple choice, else one
  std::size_t gold = 0;                    // index of the right context or continuation
  std::int64_t line = 0;                   // line in the file, from 1
};

struct CoreTask {
  std::string label;
  CoreType type = CoreType::kMultipleChoice;
  std::string delimiter = " ";  // between context and continuation
  std::int64_t shots = 0;
  double baseline = 0;  // accuracy of random answers, as a fraction
  std::filesystem::path file = {};
  std::vector<CoreItem> items = {};  // in the order in which they are evaluated
};

// Reads a bundle as nanochat's evaluate_core() does: the items of each task are shuffled by
// random.Random(1337) and, unless `max_per_task` is 0, limited to that many. Throws InputError,
// with file and line, for missing, malformed or unknown entries, and for too few items for the
// few-shot examples.
std::vector<CoreTask> read_core_bundle(const std::filesystem::path& folder,
                                       std::int64_t max_per_task);

// Parts of read_core_bundle(), exposed for tests. Parses core.yaml into tasks without baselines and
// items; `file` is as written there.
std::vector<CoreTask> parse_core_yaml(std::string_view text, std::string_view what);
// Parses eval_meta_data.csv and sets the baseline of each task.
void add_baselines(std::vector<CoreTask>& tasks, std::string_view text, std::string_view what);
std::vector<CoreItem> read_core_items(const std::filesystem::path& path, CoreType type);

}  // namespace muo::data
