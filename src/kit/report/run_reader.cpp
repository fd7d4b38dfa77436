#include "kit/report/run_reader.h"

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

#include "base/check.h"
#include "base/file_descriptor.h"
#include "base/strict_json.h"
#include "base/system_error_text.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/options/config_file.h"

namespace muo::kit {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = std::size_t{1} << 20;
// About two records: their times make them unique.
constexpr std::size_t kLastBytes = 512;

// Returns the file's text. Empty if there is no file, or, with a note, if it cannot be read.
std::string text_of(const fs::path& file, std::vector<std::string>& notes) {
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  if (!fs::is_regular_file(file, error)) {  // reading a FIFO might never end
    notes.push_back(fmt::format("{}: not a regular file: ignored", file.filename().string()));
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

// Reads the file from `at` on into `buffer` and returns the bytes read, which are fewer than
// `buffer` holds at the end of the file or on an error.
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
  const trainer::RunDirectory run{.root = directory, .resume = {}};
  std::error_code error;
  if (fs::exists(run.config(), error) || fs::exists(run.metrics(), error)) return;
  throw InputError(fmt::format("{}: {}: give run directories (--out of train)", directory.string(),
                               fs::is_directory(directory, error)
                                   ? "no run: it has neither config.toml nor metrics.jsonl"
                                   : "no such directory"));
}

RunReader::RunReader(const fs::path& directory) {
  const trainer::RunDirectory run{.root = directory, .resume = {}};
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
  const auto refresh = [this](File& file, bool (RunReader::*read_it)()) {
    const bool was_gone = file.gone;
    if (!file.has_changed()) return false;
    return file.gone || (this->*read_it)() || was_gone;
  };
  const bool config = refresh(config_, &RunReader::read_config);
  const bool facts = refresh(facts_, &RunReader::read_facts);
  const bool metrics = refresh(metrics_, &RunReader::read_metrics);
  // Shards name their tokenizer, which then overrides the option.
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
    for (const trainer::TomlEntry& entry : trainer::parse_toml(history_.config, "config.toml"))
      history_.options.emplace_back(entry.key, fmt::format("{}", fmt::join(entry.values, ", ")));
  } catch (const InputError& error) {
    config_notes_.emplace_back(error.what());
  }
  return true;
}

bool RunReader::read_facts() {
  facts_notes_.clear();
  if (!set_facts(text_of(facts_.path, facts_notes_), history_))
    facts_notes_.emplace_back("run.json: not a JSON object: ignored");
  return true;
}

bool RunReader::read_metrics() {
  std::error_code error;
  const FileDescriptor file(open(metrics_.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const bool could_be_read =
      std::exchange(can_be_read_, file && !fs::is_directory(metrics_.path, error));
  if (!can_be_read_) return true;
  const bool again = !continues(file.number());
  if (again) restart();
  const std::int64_t lines = lines_;
  read_added(file.number());
  return again || lines_ > lines || !could_be_read;
}

// Compares the last bytes read: a resumed run rewrites the file without the steps that it repeats,
// and the file may have reached its old length again before the next read().
bool RunReader::continues(int file) const {
  std::string buffer(last_bytes_.size(), '\0');
  const auto from = read_bytes_ - static_cast<std::int64_t>(last_bytes_.size());
  return read_at(file, from, buffer) == last_bytes_;
}

void RunReader::restart() {
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
  restarted_ = true;
}

void RunReader::read_added(int file) {
  std::string block(kBlock, '\0');
  for (;;) {
    const std::string_view text = read_at(file, read_bytes_, block);
    if (text.empty()) return;
    read_bytes_ += static_cast<std::int64_t>(text.size());
    last_bytes_ += text.substr(text.size() - std::min(text.size(), kLastBytes));
    if (last_bytes_.size() > kLastBytes) last_bytes_.erase(0, last_bytes_.size() - kLastBytes);
    parse(text);
  }
}

void RunReader::parse(std::string_view text) {
  for (;;) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    if (open_line_.empty()) {
      parse_line(text.substr(0, end));
    } else {
      parse_line(open_line_ += text.substr(0, end));
      open_line_.clear();
    }
    text.remove_prefix(end + 1);
  }
  open_line_ += text;
}

void RunReader::parse_line(std::string_view line) {
  ++lines_;
  if (line.empty() || add_record(line, history_)) return;
  if (bad_lines_++ == 0) first_bad_ = lines_;
}

void RunReader::finish() {
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
  if (!can_be_read_) notes.emplace_back("metrics.jsonl: cannot be read: ignored");
  if (bad_lines_ > 0)
    notes.push_back(fmt::format("metrics.jsonl: {} invalid line{}, the first is line {}: ignored",
                                bad_lines_, bad_lines_ == 1 ? "" : "s", first_bad_));
  if (cut_off_)
    notes.push_back(fmt::format("metrics.jsonl: last line {} is incomplete: ignored", lines_));
  if (restarted_)
    notes.emplace_back(
        "metrics.jsonl was truncated or replaced, as by a resumed run: read again from the start");
  std::error_code error;
  if (config_.gone || facts_.gone || metrics_.gone)
    notes.emplace_back(fs::exists(history_.directory, error)
                           ? "files of this run are gone: showing their last contents"
                           : "the directory is gone: showing its last contents");
}

RunHistory read_run(const fs::path& directory) {
  require_run(directory);
  RunReader reader(directory);
  reader.read();
  reader.finish();
  return std::move(reader).history();
}

}  // namespace muo::kit
