#include "kit/sweep/sweep_directory.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <span>

#include "base/durable_files.h"
#include "base/file_bytes.h"
#include "base/json_text.h"
#include "base/strict_json.h"
#include "kit/sweep/find_sweep.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/options/config_file.h"
#include "trainer/options/option_table.h"
#include "trainer/train/event_log.h"

namespace muo::kit {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

// True if the option may have another value when the sweep is resumed.
bool may_change(const trainer::OptionRow& row) {
  constexpr std::array<std::string_view, 3> kCompared = {"eval-every", "eval-tokens", "init-from"};
  if (row.name == "devices" || row.name == "trials-per-device" || row.name == "transfer-to")
    return true;
  if (row.file || trainer::is_list(row)) return true;  // data are compared by content, not by path
  return row.group == trainer::kRunGroup &&
         std::ranges::find(kCompared, row.name) == kCompared.end();
}

std::string header_of(const trainer::SweepOptions& options, const std::string& data) {
  trainer::SweepOptions copy = options;
  Json values;
  for (const trainer::OptionRow& row : trainer::option_table(copy))
    if (!may_change(row)) values[std::string(row.name)] = trainer::option_text(row);
  for (const trainer::Axis& axis : options.axes)
    values[axis.option] = axis.text;
  return Json{{"kind", "sweep"}, {"format", kFormat}, {"options", values}, {"data", data}}.dump();
}

// The axis as a value of TOML: values that contain commas as an array.
std::string axis_toml(const trainer::Axis& axis) {
  if (std::ranges::none_of(axis.values, [](const std::string& value) {
        return value.find(',') != std::string::npos;
      }))
    return trainer::toml_string(axis.text);
  std::vector<std::string> values;
  for (const std::string& value : axis.values)
    values.push_back(trainer::toml_string(value));
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// Returns the options as a file from which `sweep --config` reads them back.
std::string sweep_toml(const trainer::SweepOptions& options) {
  trainer::SweepOptions copy = options;
  std::string text = "\n" + trainer::config_text(trainer::option_table(copy));
  for (const trainer::Axis& axis : options.axes) {
    const std::string key = fmt::format("\n{} = ", axis.option);
    const std::size_t begin = text.find(key) + key.size();
    text.replace(begin, text.find('\n', begin) - begin, axis_toml(axis));
  }
  return "# Options of this sweep; muograph sweep --config reads them back.\n" + text;
}

std::optional<double> number_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found == line.end() || !found->is_number() ? std::nullopt
                                                    : std::optional(found->get<double>());
}
Json json_of(std::optional<double> number) { return number ? Json(*number) : Json(nullptr); }

TrialState state_of(const std::string& name, std::string_view where) {
  if (const auto state = value_of<TrialState>(name)) return *state;
  throw trainer::input_error("{}: '{}' is not a state of a trial", where, name);
}

void replay_line(Scheduler& scheduler,
                 const std::function<void(const nlohmann::json& line)>& add_trial,
                 const std::string& text, const std::string& where) {
  const nlohmann::json line = parse_strict_json(text, where);
  if (!line.is_object()) throw trainer::input_error("{}: is not an object", where);
  const std::string kind = line.value("kind", "");
  const auto trial = line.value("trial", std::size_t{0});
  if ((kind == "trial" || kind == "final") && add_trial) add_trial(line);
  if (trial >= scheduler.status().size())
    throw trainer::input_error("{}: no trial {}", where, trial);
  if (kind == "promotion") scheduler.replay_promotion(trial, line.value("rung", std::size_t{0}));
  const auto step = line.value("step", std::int64_t{0});
  const double seconds = number_of(line, "seconds").value_or(0);
  if (kind == "part") scheduler.add_part(trial, step, seconds);
  if (kind != "result") return;
  scheduler.replay_result(trial, {.state = state_of(line.value("state", ""), where),
                                  .step = step,
                                  .val_loss = number_of(line, "val_loss"),
                                  .val_bpb = number_of(line, "val_bpb"),
                                  .best = number_of(line, "best"),
                                  .seconds = seconds,
                                  .message = line.value("message", "")});
}

std::string trial_line(std::size_t number, const Trial& trial) {
  Json settings = Json::object();
  for (const Setting& setting : trial.point)
    settings[setting.option] = setting.value;
  Json line{{"kind", trial.is_final ? "final" : "trial"}, {"trial", number}, {"options", settings}};
  if (!trial.name.empty()) line["name"] = trial.name;
  return line.dump();
}

// Returns the lines that end with a newline.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string_view::npos;
       at = end + 1)
    lines.emplace_back(text.substr(at, end - at));
  return lines;
}

// Returns the points of the trials in a journal whose first line is its header.
std::vector<Point> points_in(std::span<const std::string> lines, const fs::path& file) {
  std::vector<Point> points;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::string where = fmt::format("{}:{}", file.string(), i + 1);
    const nlohmann::json line = parse_strict_json(lines[i], where);
    try {
      if (line.value("kind", "") != "trial") continue;
      points.push_back(journal_point(line));
    } catch (const nlohmann::json::exception& error) {
      throw trainer::input_error("{}: {}", where, error.what());
    }
  }
  return points;
}

bool begins_with(const SweepPlan& plan, std::span<const Point> points) {
  for (std::size_t i = 0; i < points.size(); ++i)
    if (i >= plan.trials.size() || sorted(plan.trials[i].point) != sorted(points[i])) return false;
  return !points.empty();
}

// Throws InputError if the headers differ in anything except the values of the `free` axes.
void check_header(const std::string& first, const std::string& header, const fs::path& root,
                  std::span<const trainer::Axis> free) {
  const fs::path file = root / "sweep.jsonl";
  const nlohmann::json was = parse_strict_json(first, file.string());
  const nlohmann::json is = nlohmann::json::parse(header);
  try {
    if (was.at("format") != kFormat)
      throw trainer::input_error("--resume: {} has format {}, this program supports format {}",
                                 file.string(), was["format"].dump(), kFormat);
    for (const auto& [name, value] : is["options"].items()) {
      const std::string before = was.at("options").value(name, "");
      if (before != value.get<std::string>() &&
          std::ranges::find(free, name, &trainer::Axis::option) == free.end())
        throw trainer::input_error(
            "--resume: the sweep in {} has {} {}, now {}: give the same, or a new --out",
            root.string(), name, before, value.get<std::string>());
    }
    if (free.empty() || was.at("data") != is["data"])
      throw trainer::input_error("--resume: the sweep in {} trains on other data: give a new --out",
                                 root.string());
  } catch (const nlohmann::json::exception& error) {
    throw trainer::input_error("--resume: {}: not the journal of a sweep: {}", file.string(),
                               error.what());
  }
}

// Writes the varied options, and the metric by which trials are compared, for TensorBoard's
// HPARAMS.
void describe_experiment(const fs::path& root, const trainer::SweepOptions& options,
                         const SweepPlan& plan) {
  std::vector<trainer::Hparam> varied = trainer::hparams_of(plan.trials.front().options);
  std::erase_if(varied, [&](const trainer::Hparam& hparam) {
    return std::ranges::find(options.axes, hparam.first, &trainer::Axis::option) ==
           options.axes.end();
  });
  const bool text = plan.groups.front().run.config.bytes_per_token > 0;
  const std::string_view metric = text ? trainer::kValBpbTag : "eval/val_loss";
  trainer::EventFile(root).write(
      trainer::hparams_experiment_event({trainer::wall_time(), 0}, varied, {&metric, 1}));
}

// Returns the text as a field of a CSV file (RFC 4180).
std::string field(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '"');
  return '"' + text + '"';
}
std::string field(std::optional<double> number) { return number ? fmt::format("{}", *number) : ""; }

}  // namespace

Point journal_point(const nlohmann::json& line) {
  Point point;
  for (const auto& [option, value] : line.at("options").items())
    point.push_back({option, value.get<std::string>()});
  return point;
}

std::vector<Point> journal_points(const fs::path& root) {
  if (!holds_sweep(root)) return {};
  const fs::path file = root / "sweep.jsonl";
  return points_in(lines_of(FileBytes(file).text()), file);
}

SweepDirectory::SweepDirectory(const trainer::SweepOptions& options, const SweepPlan& plan,
                               const std::string& data)
    : root_(find_sweep_directory(options.train.run)) {
  before_any_work("--out", root_.string(), [&] {
    make_directories(root_);
    make_directories(root_ / "trials");
    lock_ = trainer::lock_run_directory({root_, {}});
    const std::string header = header_of(options, data);
    const bool resumes = holds_sweep(root_);
    if (!resumes) begin(options, plan, header);
    journal_ = {root_ / "sweep.jsonl", AppendOnlyFile::Past::kWholeLines};
    if (resumes) resume(options, plan, header);
  });
}

fs::path SweepDirectory::trial(std::size_t number) const {
  return root_ / "trials" / fmt::format("{:04}", number);
}

void SweepDirectory::begin(const trainer::SweepOptions& options, const SweepPlan& plan,
                           const std::string& header) {
  replace_file(root_ / "sweep.toml", sweep_toml(options));
  std::string lines = header + '\n';
  for (std::size_t i = 0; i < plan.trials.size(); ++i)
    lines += trial_line(i, plan.trials[i]) + '\n';
  // Written atomically, because its existence marks the directory as a sweep.
  replace_file(root_ / "sweep.jsonl", lines);
  if (options.train.run.tensorboard && !plan.trials.empty())
    describe_experiment(root_, options, plan);
}

void SweepDirectory::resume(const trainer::SweepOptions& options, const SweepPlan& plan,
                            const std::string& header) {
  const fs::path file = root_ / "sweep.jsonl";
  const FileBytes bytes(file);
  lines_ = lines_of(bytes.text());
  const std::string first = lines_.empty() ? "" : lines_.front();
  const std::vector<Point> before =
      first == header ? std::vector<Point>() : points_in(lines_, file);
  if (!lines_.empty()) lines_.erase(lines_.begin());
  if (first == header) return;
  const bool grows = options.halving.factor < 2 && options.finalists < 2 && !options.trials &&
                     begins_with(plan, before);
  check_header(first, header, root_, grows ? options.axes : std::vector<trainer::Axis>());
  replace_file(root_ / "sweep.toml", sweep_toml(options));
  std::string text = fmt::format("{}\n{}", header, bytes.text().substr(first.size() + 1));
  for (std::size_t i = before.size(); i < plan.trials.size(); ++i)
    text.append(trial_line(i, plan.trials[i])).push_back('\n');
  replace_file(file, text);
  journal_ = {file, AppendOnlyFile::Past::kWholeLines};
}

void SweepDirectory::replay(
    Scheduler& scheduler, const std::function<void(const nlohmann::json& line)>& add_trial) const {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const std::string where = fmt::format("{}:{}", (root_ / "sweep.jsonl").string(), i + 2);
    try {
      replay_line(scheduler, add_trial, lines_[i], where);
    } catch (const nlohmann::json::exception& error) {
      throw trainer::input_error("{}: {}", where, error.what());
    }
  }
}

void SweepDirectory::add_trial(std::size_t number, const Trial& trial) {
  append(trial_line(number, trial));
}

void SweepDirectory::add_result(std::size_t trial, std::size_t rung, const TrialResult& result) {
  append(json_text(Json{{"kind", "result"},
                        {"trial", trial},
                        {"rung", rung},
                        {"state", name_of(result.state)},
                        {"step", result.step},
                        {"val_loss", json_of(result.val_loss)},
                        {"val_bpb", json_of(result.val_bpb)},
                        {"best", json_of(result.best)},
                        {"seconds", result.seconds},
                        {"message", result.message}}));
}

void SweepDirectory::add_part(std::size_t trial, std::int64_t step, double seconds) {
  append(Json{{"kind", "part"}, {"trial", trial}, {"step", step}, {"seconds", seconds}}.dump());
}

bool SweepDirectory::add_promotion(std::size_t trial, std::size_t rung) {
  try {
    append(Json{{"kind", "promotion"}, {"trial", trial}, {"rung", rung}}.dump());
  } catch (const WriteError&) {
    return false;
  }
  return true;
}

void SweepDirectory::append(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw WriteError(failure_);
  try {
    journal_.append(line + '\n');
    journal_.sync();
  } catch (const WriteError& error) {
    failure_ = error.what();
    throw;
  }
}

std::string SweepDirectory::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void SweepDirectory::write_table(const SweepPlan& plan,
                                 const std::vector<TrialStatus>& status) const {
  const std::vector<std::string> varied = varied_options(plan);
  std::string text = "trial,state";
  for (const std::string& option : varied)
    text += "," + field(option);
  text += ",step,tokens,val_loss,val_bpb,best,seconds,message,directory\n";
  for (std::size_t i = 0; i < status.size(); ++i) {
    const Trial& trial = plan.trials[i];
    const TrialResult& last = status[i].last;
    text += fmt::format("{},{}", i, name_of(status[i].state));
    for (const std::string& option : varied)
      text += "," + field(value_in(trial.point, option));
    text += fmt::format(",{},{},{},{},{},{:.3f},{},{}\n", status[i].step,
                        trial.config ? trial.config->token_count().before(status[i].step) : 0,
                        field(last.val_loss), field(last.val_bpb), field(last.best), last.seconds,
                        field(status[i].message), field(this->trial(i).lexically_relative(root_)));
  }
  replace_file(root_ / "sweep.csv", text);
}

}  // namespace muo::kit
