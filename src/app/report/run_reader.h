#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/report/run_history.h"

namespace muo::app {

// Throws InputError if a run has not begun in the directory: neither config.toml nor metrics.jsonl
// is there.
void require_run(const std::filesystem::path& directory);

// The history of a run that may still grow. For one thread at a time.
class RunReader {
 public:
  explicit RunReader(const std::filesystem::path& directory);  // reads nothing

  // Reads what was written since the last call: of metrics.jsonl what was added, and all of it
  // where it was cut back or replaced, as a resumed run does, which is noted. A last line that has
  // no end yet waits for the next call. Of what has gone the history stays, and that is noted.
  // Returns whether history() has changed. Of the files little is kept; a step is 80 bytes, and as
  // much again where vectors have just grown.
  bool read();

  // Takes a last line without an end, as it is all that there will be, or notes that it is cut off.
  void take_last_line();

  [[nodiscard]] const RunHistory& history() const& { return history_; }
  [[nodiscard]] RunHistory history() && { return std::move(history_); }

 private:
  // A file of the run, and what tells that it has changed without reading it.
  struct File {
    std::filesystem::path path;
    std::int64_t bytes = -1, modified_ns = 0;  // -1: there was none yet
    bool gone = false;

    bool has_changed();
  };

  // Whether history() has changed.
  bool read_config();
  bool read_facts();
  bool read_metrics();
  void read_added(int file);
  [[nodiscard]] bool goes_on(int file) const;
  void start_again();
  void take(std::string_view text);
  void take_line(std::string_view line);
  void write_notes();

  RunHistory history_;
  File config_, facts_, metrics_;
  std::vector<std::string> config_notes_, facts_notes_;
  std::int64_t read_bytes_ = 0;  // of metrics.jsonl
  std::string last_bytes_;       // the end of them, which a replaced file does not have there
  std::string open_line_;        // what of them belongs to a line without an end
  std::int64_t lines_ = 0, bad_lines_ = 0, first_bad_ = 0;
  bool can_be_read_ = true, cut_off_ = false, started_again_ = false;
};

// As a RunReader reads it once. Lines of metrics.jsonl that are no records, as a crash leaves one
// at the end, are left out and noted. Throws as require_run().
RunHistory read_run(const std::filesystem::path& directory);

}  // namespace muo::app
