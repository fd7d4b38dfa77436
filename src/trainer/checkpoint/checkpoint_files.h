#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/durable_files.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace muo::trainer {

// The range of elements of a logical tensor that one rank writes.
struct CheckpointRange {
  SafetensorsSpec spec;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// How a hidden name identifies its process. kHostAndPid is for a world of several processes, which
// may be on several hosts.
enum class HiddenName : std::uint8_t { kPid, kHostAndPid };

// Returns this process's hidden name beside `checkpoint`, for a directory that is not yet a
// checkpoint (`kind` "tmp") or no longer one ("old"). Readers ignore such directories; a later
// CheckpointFiles::begin() removes leftover ones.
std::filesystem::path hidden_beside(const std::filesystem::path& checkpoint, std::string_view kind,
                                    HiddenName name);

// Checksums of the ranges that one process wrote, by file and tensor. Summed over all processes,
// they are the checksums of the tensors.
using CheckpointSums = std::array<std::vector<std::uint64_t>, kCheckpointFiles.size()>;

// What other processes need to join a save.
struct CheckpointPlan {
  std::filesystem::path directory;  // absolute
  std::array<std::vector<SafetensorsSpec>, kCheckpointFiles.size()> tensors;
};

// Writes the files of one checkpoint at a time: begin(), write() by any number of threads, then
// commit() or abandon(). The files are written to a temporary directory (".step_00000100.tmp-PID"),
// which is renamed when everything is on disk: whenever the program dies, readers find a complete
// checkpoint or none. The rename also replaces an older checkpoint of the same step.
//
// With several processes, one process does this and sends its plan() to the others, which call
// join(), write(), sync() and abandon(). It then adds the results of their sync() and commits.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(std::filesystem::path run, HiddenName name = HiddenName::kPid);
  ~CheckpointFiles();
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;

  // Creates the files for the `ranges` of all writers and removes leftovers of dead processes.
  // Throws Error, also if the ranges do not cover each tensor exactly once.
  void begin(std::int64_t step, std::vector<CheckpointRange> ranges);
  // Writes elements of the tensor from index `begin` on. Thread-safe.
  void write(std::string_view tensor, std::int64_t begin, std::span<const std::byte> bytes);
  void commit(CheckpointInfo info);

  [[nodiscard]] CheckpointPlan plan() const;
  // Opens the files of another process's plan. Throws WriteError if they are not visible on this
  // host.
  void join(const CheckpointPlan& plan);
  // Syncs everything that this process wrote to disk, and returns its checksums.
  [[nodiscard]] CheckpointSums sync();
  void add(const CheckpointSums& others);

  // Removes the temporary files of a save, also after commit(). A later begin() removes leftovers
  // that cannot be removed now, and a replaced checkpoint that a failed commit has renamed. After
  // join(): only closes the files, which belong to the process that called begin().
  void abandon() noexcept;

  // Called by all threads before each change of the file system, with a description of the change.
  // An exception thrown by the hook counts as a failure of that change. May be set only while no
  // save is in progress.
  std::function<void(std::string_view change)> hook;
  // Number of changes so far, from which a waiting thread sees the writers' progress. Thread-safe.
  [[nodiscard]] std::uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }
  // Counts a change, sends a heartbeat, and calls the hook.
  void change(std::string_view what);

 private:
  class File;
  void remove_leftovers();
  void write_text(const char* name, const std::string& text);

  const std::filesystem::path run_;
  const HiddenName name_;
  std::filesystem::path temporary_;  // empty: no save begun by this process is in progress
  std::filesystem::path aside_;      // temporary name of a replaced checkpoint
  FileLock lock_;
  std::vector<std::unique_ptr<File>> files_;
  std::atomic<std::uint64_t> changes_ = 0;
};

}  // namespace muo::trainer
