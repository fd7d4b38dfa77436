#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/enum_names.h"

namespace muo::data {

// The tasks of DCLM's CORE metric (Li et al. 2024, https://arxiv.org/abs/2406.11794) as nanochat
// has them: a folder with core.yaml, eval_meta_data.csv and eval_data/.

// multiple_choice: one query, several choices. schema: several contexts, one continuation.
// language_modeling: one context, one continuation.
enum class CoreType : std::uint8_t { kMultipleChoice, kSchema, kLanguageModeling };
constexpr auto names_of(CoreType) {
  return name_list("multiple_choice", "schema", "language_modeling");
}

struct CoreItem {
  std::vector<std::string> contexts;       // several of a schema, else one
  std::vector<std::string> continuations;  // several choices, else one
  std::size_t gold = 0;                    // of what there are several of
  std::int64_t line = 0;                   // of the file, from 1 on
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

// As nanochat's evaluate_core() reads them: each task's items shuffled by random.Random(1337), and
// if `max_per_task` is not 0 the first so many. Throws InputError, with file and line, for what is
// missing, malformed or unknown, and where there are too few items for the solved examples.
std::vector<CoreTask> read_core_bundle(const std::filesystem::path& folder,
                                       std::int64_t max_per_task);

// The parts of it, for tests. core.yaml: tasks without baseline and items, `file` as it is named.
std::vector<CoreTask> parse_core_yaml(std::string_view text, std::string_view what);
// eval_meta_data.csv: sets each task's baseline.
void add_baselines(std::vector<CoreTask>& tasks, std::string_view text, std::string_view what);
std::vector<CoreItem> read_core_items(const std::filesystem::path& path, CoreType type);

}  // namespace muo::data
