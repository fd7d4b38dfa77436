#include "app/report/run_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "app/checkpoint/run_directory.h"
#include "app/options/config_file.h"
#include "base/check.h"
#include "base/file_descriptor.h"
#include "base/strict_json.h"
#include "base/system_error_text.h"

namespace muo::app {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = std::size_t{1} << 20;
// Two records or so: the times in them are never the same twice.
constexpr std::size_t kLastBytes = 512;

// The file's text; nothing where there is no file. What cannot be read is noted.
std::string text_of(const fs::path& file, std::vector<std::string>& notes) {
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  if (!fs::is_regular_file(file, error)) {  // a fifo might never end
    notes.push_back(fmt::format("{}: is not a regular file: left out", file.filename().string()));
    return {};
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || !text)
    notes.push_back(
        fmt::format("{}: cannot be read: {}", file.filename().string(), system_error_text(errno)));
  return text.str();
}

// The bytes of the file from `at` on that fit; less at its end, or where an error ends it.
std::string_view read_at(int file, std::int64_t at, std::string& buffer) {
  std::size_t count = 0;
  while (count < buffer.size()) {
    const ssize_t n = pread(file, buffer.data() + count, buffer.size() - count,
                            at + static_cast<std::int64_t>(count));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    count += static_cast<std::size_t>(n);
  }
  return std::string_view(buffer).substr(0, count);
}

}  // namespace

void require_run(const fs::path& directory) {
  const RunDirectory run{.root = directory, .resume = {}};
  std::error_code error;
  if (fs::exists(run.config(), error) || fs::exists(run.metrics(), error)) return;
  throw InputError(fmt::format(
      "{}: {}: give run directories, as --out of train names them", directory.string(),
      fs::is_directory(directory, error) ? "no run: neither config.toml nor metrics.jsonl is there"
                                         : "no such directory"));
}

RunReader::RunReader(const fs::path& directory) {
  const RunDirectory run{.root = directory, .resume = {}};
  history_.directory = directory;
  config_.path = run.config();
  facts_.path = run.facts();
  metrics_.path = run.metrics();
}

bool RunReader::File::has_changed() {
  struct stat now = {};
  if (::stat(path.c_str(), &now) != 0) return bytes >= 0 && !std::exchange(gone, true);
  const std::int64_t time = now.st_mtim.tv_sec * 1'000'000'000 + now.st_mtim.tv_nsec;
  const bool same = !gone && bytes == now.st_size && modified_ns == time;
  gone = false;
  bytes = now.st_size;
  modified_ns = time;
  return !same;
}

bool RunReader::read() {
  const auto look = [this](File& file, bool (RunReader::*read_it)()) {
    const bool was_gone = file.gone;
    if (!file.has_changed()) return false;
    return file.gone || (this->*read_it)() || was_gone;
  };
  const bool config = look(config_, &RunReader::read_config);
  const bool facts = look(facts_, &RunReader::read_facts);
  const bool metrics = look(metrics_, &RunReader::read_metrics);
  // Shards name their own, whatever the option says.
  for (auto& [name, value] : history_.options)
    if (name == "tokenizer" && !history_.tokenizer.empty()) value = history_.tokenizer;
  if (config || facts || metrics) write_notes();
  return config || facts || metrics;
}

bool RunReader::read_config() {
  config_notes_.clear();
  history_.config = text_of(config_.path, config_notes_);
  history_.options.clear();
  try {
    for (const TomlEntry& entry : parse_toml(history_.config, "config.toml"))
      history_.options.emplace_back(entry.key, fmt::format("{}", fmt::join(entry.values, ", ")));
  } catch (const InputError& error) {
    config_notes_.emplace_back(error.what());
  }
  return true;
}

bool RunReader::read_facts() {
  facts_notes_.clear();
  if (!take_facts(text_of(facts_.path, facts_notes_), history_))
    facts_notes_.emplace_back("run.json: not a JSON object: left out");
  return true;
}

bool RunReader::read_metrics() {
  std::error_code error;
  const FileDescriptor file(open(metrics_.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const bool could_be_read =
      std::exchange(can_be_read_, file && !fs::is_directory(metrics_.path, error));
  if (!can_be_read_) return true;
  const bool again = !goes_on(file.number());
  if (again) start_again();
  const std::int64_t lines = lines_;
  read_added(file.number());
  return again || lines_ > lines || !could_be_read;
}

// A run that goes on rewrites the file without the steps that it repeats, and may have made it as
// long again before anybody looks.
bool RunReader::goes_on(int file) const {
  std::string buffer(last_bytes_.size(), '\0');
  const auto from = read_bytes_ - static_cast<std::int64_t>(last_bytes_.size());
  return read_at(file, from, buffer) == last_bytes_;
}

void RunReader::start_again() {
  RunHistory empty;
  empty.directory = std::move(history_.directory);
  empty.config = std::move(history_.config);
  empty.options = std::move(history_.options);
  empty.facts = std::move(history_.facts);
  history_ = std::move(empty);
  read_bytes_ = lines_ = bad_lines_ = first_bad_ = 0;
  last_bytes_.clear();
  open_line_.clear();
  cut_off_ = false;
  started_again_ = true;
}

void RunReader::read_added(int file) {
  std::string block(kBlock, '\0');
  for (;;) {
    const std::string_view text = read_at(file, read_bytes_, block);
    if (text.empty()) return;
    read_bytes_ += static_cast<std::int64_t>(text.size());
    last_bytes_ += text.substr(text.size() - std::min(text.size(), kLastBytes));
    if (last_bytes_.size() > kLastBytes) last_bytes_.erase(0, last_bytes_.size() - kLastBytes);
    take(text);
  }
}

void RunReader::take(std::string_view text) {
  for (;;) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    if (open_line_.empty()) {
      take_line(text.substr(0, end));
    } else {
      take_line(open_line_ += text.substr(0, end));
      open_line_.clear();
    }
    text.remove_prefix(end + 1);
  }
  open_line_ += text;
}

void RunReader::take_line(std::string_view line) {
  ++lines_;
  if (line.empty() || add_record(line, history_)) return;
  if (bad_lines_++ == 0) first_bad_ = lines_;
}

void RunReader::take_last_line() {
  if (open_line_.empty()) return;
  ++lines_;
  cut_off_ = !add_record(open_line_, history_);
  open_line_.clear();
  write_notes();
}

void RunReader::write_notes() {
  std::vector<std::string>& notes = history_.notes;
  notes = config_notes_;
  notes.insert(notes.end(), facts_notes_.begin(), facts_notes_.end());
  if (!can_be_read_) notes.emplace_back("metrics.jsonl: cannot be read: left out");
  if (bad_lines_ > 0)
    notes.push_back(fmt::format(
        "metrics.jsonl: {} line{} no record{}, the first is line {}: left "
        "out",
        bad_lines_, bad_lines_ == 1 ? " is" : "s are", bad_lines_ == 1 ? "" : "s", first_bad_));
  if (cut_off_)
    notes.push_back(
        fmt::format("metrics.jsonl: line {}, the last one, is cut off: left out", lines_));
  if (started_again_)
    notes.emplace_back(
        "metrics.jsonl was cut back or replaced, as a resumed run does: read again from its start");
  std::error_code error;
  if (config_.gone || facts_.gone || metrics_.gone)
    notes.emplace_back(fs::exists(history_.directory, error)
                           ? "files of this run are gone: what they last held is shown"
                           : "the directory is gone: what it last held is shown");
}

RunHistory read_run(const fs::path& directory) {
  require_run(directory);
  RunReader reader(directory);
  reader.read();
  reader.take_last_line();
  return std::move(reader).history();
}

}  // namespace muo::app
