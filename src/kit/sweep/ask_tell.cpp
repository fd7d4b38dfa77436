#include "kit/sweep/ask_tell.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/strict_json.h"
#include "base/system_error_text.h"
#include "trainer/options/option_table.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestLine = std::size_t{1} << 20;
constexpr std::size_t kLongestName = 100;

// Returns a trial's name, an unsigned integer or a string, as JSON text.
std::string parse_name(const nlohmann::json& message) {
  const auto found = message.find("trial");
  if (found == message.end() || !(found->is_number_unsigned() || found->is_string()))
    throw InputError("\"trial\" is missing, or neither a whole number nor a string");
  std::string name = found->dump();
  if (name.size() > kLongestName)
    throw trainer::input_error("\"trial\" has {} characters: give at most {}", name.size(),
                               kLongestName);
  return name;
}

std::string value_text(const std::string& option, const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (value.is_number()) return value.dump();
  throw trainer::input_error("options: {}: {} is not a number, string or boolean", option,
                             value.dump());
}

Point parse_point(const nlohmann::json& options) {
  if (!options.is_object())
    throw InputError("\"options\" is not an object: give {\"NAME\": VALUE}");
  trainer::TrainOptions scratch;
  const std::vector<trainer::OptionRow> rows = trainer::option_table(scratch);
  std::vector<std::string_view> names;
  for (const trainer::OptionRow& row : rows)
    if (is_sweepable(row)) names.push_back(row.name);
  Point point;
  for (const auto& [name, value] : options.items()) {
    if (std::ranges::find(names, name) == names.end()) {
      if (std::ranges::find(rows, name, &trainer::OptionRow::name) != rows.end())
        throw trainer::input_error("options: {} cannot vary within a sweep", name);
      const std::string_view near = trainer::nearest_name(name, names);
      throw trainer::input_error("options: unknown option {}{}", name,
                                 near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
    point.push_back({name, value_text(name, value)});
  }
  return point;
}

Json number_or_null(std::optional<double> number) {
  return number && std::isfinite(*number) ? Json(*number) : Json(nullptr);
}

void add_name(Json& message, const Trial& trial) {
  message["trial"] = parse_strict_json(trial.name, "the name of a trial");
}

std::string text_of(const Json& message) { return json_text(message) + '\n'; }

}  // namespace

AskTell::AskTell(int in, int out, SweepPlanner& planner, Scheduler& scheduler,
                 SweepDirectory& directory, const std::atomic<int>& signal)
    : in_(in),
      out_(out),
      planner_(planner),
      scheduler_(scheduler),
      directory_(directory),
      signal_(signal) {}

std::size_t AskTell::add(const std::string& name, const nlohmann::json& options) {
  if (numbers_.contains(name)) throw trainer::input_error("trial {} already exists", name);
  if (std::ssize(numbers_) >= kMaxTrials)
    throw trainer::input_error("trial {}: a sweep has at most {} trials", name, kMaxTrials);
  const std::size_t number = planner_.add(name, parse_point(options));
  numbers_[name] = number;
  return number;
}

void AskTell::replay(const nlohmann::json& line) {
  add(line.value("name", ""), line.value("options", nlohmann::json()));
  scheduler_.add_trials();
}

void AskTell::begin() {
  Json trials = Json::array();
  const std::vector<TrialStatus> status = scheduler_.status();
  for (std::size_t i = 0; i < status.size(); ++i) {
    TrialResult result = status[i].last;
    result.state = status[i].state;
    trials.push_back(describe(i, result));
  }
  write(text_of({{"event", "ready"},
                 {"workers", planner_.plan().workers},
                 {"directory", directory_.root().string()},
                 {"trials", std::move(trials)}}));
}

void AskTell::exchange(SweepRun& run) {
  std::deque<std::string> queued;
  {
    const std::lock_guard lock(mutex_);
    queued.swap(queued_);
  }
  for (const std::string& message : queued)
    write(message);
  if (!closed_) read_lines(run);
}

void AskTell::read_lines(SweepRun& run) {
  pollfd source{.fd = in_, .events = POLLIN, .revents = 0};
  if (::poll(&source, 1, 0) <= 0) return;
  std::array<char, 1 << 16> bytes{};
  const ssize_t count = ::read(in_, bytes.data(), bytes.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count > 0) {
    take_bytes({bytes.data(), static_cast<std::size_t>(count)}, run);
    return;
  }
  closed_ = true;
  if (!line_.empty()) take_line(run);
  scheduler_.close();
}

void AskTell::take_bytes(std::string_view bytes, SweepRun& run) {
  for (const char byte : bytes) {
    if (byte == '\n')
      take_line(run);
    else if (line_.size() <= kLongestLine)
      line_ += byte;
  }
}

void AskTell::take_line(SweepRun& run) {
  const std::string line = std::exchange(line_, {});
  const std::int64_t number = line_number_++;
  if (line.find_first_not_of(" \t\r") == std::string::npos) return;
  nlohmann::json message;
  try {
    if (line.size() > kLongestLine)
      throw trainer::input_error("the line has more than {} bytes", kLongestLine);
    message = parse_strict_json(line, "the line");
    if (!message.is_object()) throw InputError("the line is not a JSON object");
    take_message(message, run);
  } catch (const InputError& error) {
    Json answer{{"event", "error"}, {"line", number}, {"message", error.what()}};
    if (message.is_object() && message.contains("trial")) answer["trial"] = message["trial"];
    write(text_of(answer));
  }
}

void AskTell::take_message(const nlohmann::json& message, SweepRun& run) {
  const std::string name = parse_name(message);
  for (const auto& [key, value] : message.items())
    if (key != "trial" && key != "options" && key != "stop")
      throw trainer::input_error("unknown key \"{}\": expected trial, options or stop", key);
  if (message.contains("options") == message.contains("stop"))
    throw InputError("give either \"options\" of a new trial, or \"stop\": true");
  if (message.contains("options")) return ask(name, message["options"]);
  if (message["stop"] != true) throw InputError("\"stop\" must be true");
  stop(name, run);
}

void AskTell::ask(const std::string& name, const nlohmann::json& options) {
  const std::size_t number = add(name, options);
  const Trial& trial = planner_.plan().trials[number];
  directory_.add_trial(number, trial);
  scheduler_.add_trials();
  if (!trial.config) ended(number, {.state = TrialState::kRefused, .message = trial.refusal});
}

// Leaves a trial that has already ended unchanged.
void AskTell::stop(const std::string& name, SweepRun& run) {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) throw trainer::input_error("no trial {}", name);
  const std::size_t number = found->second;
  if (!scheduler_.cancel(number)) return run.end_early(number);
  const TrialResult result{.state = TrialState::kStopped};
  directory_.add_result(number, 0, result);
  ended(number, result);
}

void AskTell::evaluated(std::size_t trial, std::int64_t step, const trainer::EvalResult& result) {
  Json message{{"event", "evaluation"}};
  add_name(message, planner_.plan().trials[trial]);
  message["step"] = step;
  message["val_loss"] = number_or_null(result.loss);
  message["val_bpb"] = result.bpb < 0 ? Json(nullptr) : number_or_null(result.bpb);
  queue(message);
}

void AskTell::ended(std::size_t trial, const TrialResult& result) {
  Json message{{"event", "result"}};
  message.update(describe(trial, result));
  queue(message);
}

Json AskTell::describe(std::size_t number, const TrialResult& result) const {
  const Trial& trial = planner_.plan().trials[number];
  Json out;
  add_name(out, trial);
  out["state"] = name_of(result.state);
  out["step"] = result.step;
  out["val_loss"] = number_or_null(result.val_loss);
  out["val_bpb"] = number_or_null(result.val_bpb);
  out["best"] = number_or_null(result.best);
  out["seconds"] = result.seconds;
  out["message"] = result.message;
  out["options"] = Json::object();
  for (const Setting& setting : trial.point)
    out["options"][setting.option] = setting.value;
  out["directory"] = directory_.trial(number).string();
  return out;
}

void AskTell::queue(const Json& message) {
  const std::lock_guard lock(mutex_);
  queued_.push_back(text_of(message));
}

// Writes pieces of at most PIPE_BUF bytes: a writable pipe takes one without blocking, so `signal_`
// is checked between pieces.
void AskTell::write(std::string_view text) const {
  while (!text.empty() && signal_ == 0) {
    pollfd sink{.fd = out_, .events = POLLOUT, .revents = 0};
    if (::poll(&sink, 1, 100) <= 0) continue;
    const std::string_view piece = text.substr(0, PIPE_BUF);
    const ssize_t count = ::write(out_, piece.data(), piece.size());
    if (count < 0 && errno != EINTR && errno != EAGAIN)
      throw Error(
          fmt::format("--ask-tell: cannot write to standard output: {}", system_error_text(errno)));
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  }
}

}  // namespace muo::kit
