#include "data/examples/core_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/check.h"
#include "base/file_bytes.h"
#include "data/examples/csv.h"
#include "data/examples/json_lines.h"
#include "data/examples/python_random.h"
#include "data/examples/yaml.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kShuffleSeed = 1337;
constexpr std::int64_t kMaxShots = 1000;

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ')
    text.remove_suffix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// Reads one task of core.yaml.
class TaskEntry {
 public:
  TaskEntry(const YamlValue& entry, std::string_view what) : entry_(entry), what_(what) {}

  [[nodiscard]] CoreTask task() const {
    CoreTask task;
    task.label = text("label");
    task.file = text("dataset_uri");
    // Rejects paths outside of the bundle, because it may come from an untrusted source.
    if (task.file.is_absolute() || std::ranges::find(task.file, "..") != task.file.end())
      fail(entry_, fmt::format("{}: dataset_uri \"{}\" leaves the bundle: give a path below its "
                               "eval_data",
                               task.label, task.file.native()));
    const std::string type = text("icl_task_type");
    const auto known = value_of<CoreType>(type);
    if (!known)
      fail(entry_, fmt::format("{}: icl_task_type \"{}\" is unknown: expected multiple_choice, "
                               "schema or language_modeling",
                               task.label, type));
    task.type = *known;
    task.shots = shots();
    if (const YamlValue* const delimiter = entry_.find("continuation_delimiter")) {
      if (delimiter->kind != YamlValue::Kind::kScalar || delimiter->is_null())
        fail(*delimiter, fmt::format("{}: continuation_delimiter is not a string", task.label));
      task.delimiter = delimiter->text;
    }
    return task;
  }

 private:
  [[noreturn]] void fail(const YamlValue& at, const std::string& reason) const {
    throw InputError(concat(what_, ": line ", at.line, ": ", reason));
  }
  [[nodiscard]] const YamlValue& value(const char* key) const {
    const YamlValue* const found = entry_.find(key);
    if (found == nullptr) fail(entry_, fmt::format("a task without {}", key));
    return *found;
  }
  [[nodiscard]] std::string text(const char* key) const {
    const YamlValue& found = value(key);
    if (found.kind != YamlValue::Kind::kScalar || found.text.empty())
      fail(found, fmt::format("{} is not a string", key));
    return found.text;
  }
  // nanochat uses the first of several numbers of few-shot examples.
  [[nodiscard]] std::int64_t shots() const {
    const YamlValue& list = value("num_fewshot");
    std::optional<std::int64_t> number;
    if (!list.items.empty()) number = number_in<std::int64_t>(list.items.front().text);
    if (!number || *number < 0 || *number > kMaxShots)
      fail(list, fmt::format("num_fewshot is not a list of numbers from 0 to {}", kMaxShots));
    return *number;
  }

  const YamlValue& entry_;
  std::string_view what_;
};

std::size_t column_of(const CsvRow& head, std::string_view name, std::string_view what) {
  const auto found = std::ranges::find(head.fields, name);
  if (found == head.fields.end())
    throw InputError(concat(what, ": line ", head.line, ": no column \"", name, "\""));
  return static_cast<std::size_t>(found - head.fields.begin());
}

CoreItem item_of(const JsonLine& line, std::int64_t number, CoreType type) {
  CoreItem item{.contexts = {}, .continuations = {}, .line = number};
  switch (type) {
    case CoreType::kMultipleChoice:
      item.contexts = {line.text("query")};
      item.continuations = line.texts("choices");
      item.gold = line.index("gold", item.continuations.size());
      break;
    case CoreType::kSchema:
      item.contexts = line.texts("context_options");
      item.continuations = {line.text("continuation")};
      item.gold = line.index("gold", item.contexts.size());
      break;
    case CoreType::kLanguageModeling:
      item.contexts = {line.text("context")};
      item.continuations = {line.text("continuation")};
      break;
  }
  return item;
}

}  // namespace

std::vector<CoreTask> parse_core_yaml(std::string_view text, std::string_view what) {
  const YamlValue document = parse_yaml(text, what);
  const YamlValue* const list = document.find("icl_tasks");
  if (list == nullptr || list->items.empty())
    throw InputError(concat(what, ": no list \"icl_tasks\" of tasks"));
  std::vector<CoreTask> tasks;
  for (const YamlValue& entry : list->items) {
    tasks.push_back(TaskEntry(entry, what).task());
    if (std::ranges::count(tasks, tasks.back().label, &CoreTask::label) > 1)
      throw InputError(concat(what, ": line ", entry.line, ": a second task with the label ",
                              tasks.back().label));
  }
  return tasks;
}

void add_baselines(std::vector<CoreTask>& tasks, std::string_view text, std::string_view what) {
  const std::vector<CsvRow> rows = parse_csv(text, what);
  if (rows.empty()) throw InputError(concat(what, ": the file is empty"));
  const std::size_t task_column = column_of(rows.front(), "Eval Task", what);
  const std::size_t column = column_of(rows.front(), "Random baseline", what);
  for (CoreTask& task : tasks) {
    const auto is_named = [&](const CsvRow& row) {
      return row.fields.size() > task_column && row.fields[task_column] == task.label;
    };
    // If several rows have that name, the last one counts, as in nanochat.
    const auto found = std::find_if(rows.rbegin(), rows.rend() - 1, is_named);
    if (found == rows.rend() - 1)
      throw InputError(concat(what, ": no baseline for the task ", task.label));
    std::optional<double> percent;
    if (found->fields.size() > column) percent = number_in<double>(found->fields[column]);
    if (!percent || !(*percent >= 0 && *percent < 100))
      throw InputError(concat(what, ": line ", found->line, ": the random baseline of ", task.label,
                              " is not a number in [0, 100)"));
    task.baseline = 0.01 * *percent;
  }
}

std::vector<CoreItem> read_core_items(const fs::path& path, CoreType type) {
  std::vector<CoreItem> items;
  read_json_lines(path, [&](const JsonLine& line, std::int64_t number) {
    items.push_back(item_of(line, number, type));
  });
  return items;
}

std::vector<CoreTask> read_core_bundle(const fs::path& folder, std::int64_t max_per_task) {
  const fs::path yaml = folder / "core.yaml", meta = folder / "eval_meta_data.csv";
  std::vector<CoreTask> tasks = parse_core_yaml(FileBytes(yaml).text(), yaml.native());
  add_baselines(tasks, FileBytes(meta).text(), meta.native());
  for (CoreTask& task : tasks) {
    task.file = folder / "eval_data" / task.file;
    task.items = read_core_items(task.file, task.type);
    PythonRandom(kShuffleSeed).shuffle(task.items);
    if (max_per_task > 0 && std::ssize(task.items) > max_per_task)
      task.items.resize(static_cast<std::size_t>(max_per_task));
    if (task.shots >= std::ssize(task.items))
      throw InputError(
          fmt::format("{}: {} few-shot examples before each need at least {} examples, "
                      "but there are {}; give more by --max-per-task, or fewer by "
                      "num_fewshot in core.yaml",
                      task.file.native(), task.shots, task.shots + 1, task.items.size()));
  }
  return tasks;
}

}  // namespace muo::data
