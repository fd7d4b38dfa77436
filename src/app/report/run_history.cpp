#include "app/report/run_history.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <system_error>

#include "app/checkpoint/run_directory.h"
#include "app/options/config_file.h"
#include "app/options/option_table.h"
#include "base/check.h"

namespace muo {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// The file's text; nothing where there is no file. What cannot be read is noted.
std::string text_of(const fs::path& file, std::vector<std::string>& notes) {
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || !text)
    notes.push_back(fmt::format("{}: cannot be read: {}", file.filename().string(),
                                std::generic_category().message(errno)));
  return text.str();
}

double number(const Json& record, std::string_view key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

std::string text(const Json& record, std::string_view key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

void read_config(const RunDirectory& run, RunHistory& history) {
  history.config = text_of(run.config(), history.notes);
  try {
    for (const TomlEntry& entry : parse_toml(history.config, "config.toml"))
      history.options.emplace_back(entry.key, fmt::format("{}", fmt::join(entry.values, ", ")));
  } catch (const InputError& error) {
    history.notes.emplace_back(error.what());
  }
}

void read_facts(const RunDirectory& run, RunHistory& history) {
  history.facts = text_of(run.facts(), history.notes);
  if (history.facts.empty() || Json::parse(history.facts, nullptr, false).is_object()) return;
  history.facts.clear();
  history.notes.emplace_back("run.json: not a JSON object: left out");
}

void add_train(const Json& record, std::int64_t step, RunHistory& history) {
  // An attempt that was resumed from before this step.
  while (!history.step.empty() && history.step.back() >= step) {
    history.step.pop_back();
    history.tokens.pop_back();
    for (std::vector<double>& values : history.series)
      values.pop_back();
  }
  while (!history.skipped.empty() && history.skipped.back().step >= step)
    history.skipped.pop_back();
  while (!history.clipped.empty() && history.clipped.back() >= step) {
    history.clipped.pop_back();
    history.gradient_scale.pop_back();
  }
  history.step.push_back(step);
  const double tokens = number(record, "tokens");
  history.tokens.push_back(tokens >= 0 && tokens < 0x1p62 ? static_cast<std::int64_t>(tokens) : 0);
  for (std::size_t i = 0; i < kSeries.size(); ++i)
    history.series.at(i).push_back(number(record, kSeries.at(i)));
  if (std::string why = text(record, "skipped"); !why.empty())
    history.skipped.push_back({step, std::move(why), text(record, "bad_number")});
  if (const double scale = number(record, "gradient_scale"); scale < 1) {
    history.clipped.push_back(step);
    history.gradient_scale.push_back(scale);
  }
}

void add_evaluation(const Json& record, std::int64_t step, RunHistory& history) {
  while (!history.eval_step.empty() && history.eval_step.back() >= step) {
    history.eval_step.pop_back();
    history.val_loss.pop_back();
    history.val_bpb.pop_back();
  }
  history.eval_step.push_back(step);
  history.val_loss.push_back(number(record, "val_loss"));
  history.val_bpb.push_back(number(record, "val_bpb"));
}

void add_sample(const Json& record, std::int64_t step, RunHistory& history) {
  while (!history.samples.empty() && history.samples.back().step >= step)
    history.samples.pop_back();
  history.samples.push_back({step, text(record, "text")});
}

void add_alarm(const Json& record, std::int64_t step, RunHistory& history) {
  while (!history.alarms.empty() && history.alarms.back().step > step)
    history.alarms.pop_back();
  history.alarms.push_back({step, text(record, "alarm"), text(record, "text")});
}

// Whether the line was a record.
bool add_record(const std::string& line, RunHistory& history) {
  const Json record = Json::parse(line, nullptr, false);
  if (!record.is_object()) return false;
  const auto step = record.find("step");
  if (step == record.end() || !step->is_number_integer()) return false;
  const auto at = step->get<std::int64_t>();
  if (at < 0 || static_cast<double>(at) > kMostSteps) return false;
  const std::string kind = text(record, "kind");
  if (kind == "train") add_train(record, at, history);
  if (kind == "eval") add_evaluation(record, at, history);
  if (kind == "sample") add_sample(record, at, history);
  if (kind == "alarm") add_alarm(record, at, history);
  return true;
}

void read_metrics(const RunDirectory& run, RunHistory& history) {
  std::error_code error;
  if (!fs::exists(run.metrics(), error)) return;
  std::ifstream in(run.metrics(), std::ios::binary);
  if (!in || fs::is_directory(run.metrics(), error)) {
    history.notes.emplace_back("metrics.jsonl: cannot be read: left out");
    return;
  }
  std::int64_t lines = 0, bad = 0, first_bad = 0;
  bool cut = false;
  for (std::string line; std::getline(in, line);) {
    ++lines;
    if (line.empty() || add_record(line, history)) continue;
    cut = in.eof();
    if (cut) continue;
    if (bad++ == 0) first_bad = lines;
  }
  if (bad > 0)
    history.notes.push_back(
        fmt::format("metrics.jsonl: {} line{} no record{}, the first is line "
                    "{}: left out",
                    bad, bad == 1 ? " is" : "s are", bad == 1 ? "" : "s", first_bad));
  if (cut)
    history.notes.push_back(
        fmt::format("metrics.jsonl: line {}, the last one, is cut off: left out", lines));
}

}  // namespace

RunHistory read_run(const fs::path& directory) {
  const RunDirectory run{.root = directory, .resume = {}};
  std::error_code error;
  if (!fs::exists(run.config(), error) && !fs::exists(run.metrics(), error))
    throw InputError(fmt::format("{}: {}: give run directories, as --out of train names them",
                                 directory.string(),
                                 fs::is_directory(directory, error)
                                     ? "no run: neither config.toml nor metrics.jsonl is there"
                                     : "no such directory"));
  RunHistory history;
  history.directory = directory;
  read_config(run, history);
  read_facts(run, history);
  read_metrics(run, history);
  return history;
}

}  // namespace muo
