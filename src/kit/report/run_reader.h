#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kit/report/run_history.h"

namespace muo::kit {

// Throws InputError if no run has begun in the directory, that is, if it has neither config.toml
// nor metrics.jsonl.
void require_run(const std::filesystem::path& directory);

// Reads the history of a run that may still grow. Not thread-safe.
class RunReader {
 public:
  explicit RunReader(const std::filesystem::path& directory);  // reads nothing

  // Reads the changes since the last call and returns true if history() has changed. Of
  // metrics.jsonl it reads only the added lines; if the file was truncated or replaced, as by a
  // resumed run, it reads all of it, with a note. An incomplete last line waits for the next call.
  // If files are removed, their history stays, with a note. A step takes 80 bytes, or 160 while
  // vectors grow.
  bool read();

  // Adds an incomplete last line if it is a whole record; otherwise notes that it is incomplete.
  void finish();

  [[nodiscard]] const RunHistory& history() const& { return history_; }
  [[nodiscard]] RunHistory history() && { return std::move(history_); }

 private:
  // A file of the run and its last known state, by which changes are detected without reading it.
  struct File {
    std::filesystem::path path;
    std::int64_t bytes = -1, modified_ns = 0;  // -1: never seen
    bool gone = false;

    bool has_changed();
  };

  // Each returns true if history() has changed.
  bool read_config();
  bool read_facts();
  bool read_metrics();
  void read_added(int file);
  [[nodiscard]] bool continues(int file) const;
  void restart();
  void parse(std::string_view text);
  void parse_line(std::string_view line);
  void write_notes();

  RunHistory history_;
  File config_, facts_, metrics_;
  std::vector<std::string> config_notes_, facts_notes_;
  std::int64_t read_bytes_ = 0;  // bytes of metrics.jsonl that have been read
  std::string last_bytes_;       // the last of them, which differ if the file is replaced
  std::string open_line_;        // incomplete line at their end
  std::int64_t lines_ = 0, bad_lines_ = 0, first_bad_ = 0;
  bool can_be_read_ = true, cut_off_ = false, restarted_ = false;
};

// Reads a run once. Ignores, with a note, invalid lines of metrics.jsonl such as a crash may leave
// at the end. Throws as require_run() does.
RunHistory read_run(const std::filesystem::path& directory);

}  // namespace muo::kit
