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

#include "app/checkpoint/manifest.h"
#include "app/checkpoint/safetensors.h"
#include "base/durable_files.h"

namespace muo::app {

// What one writer writes of one tensor.
struct CheckpointRange {
  SafetensorsSpec spec;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// What a hidden name says of the process whose it is: that of a world of several processes, which
// may be on several hosts, says the host as well.
enum class HiddenName : std::uint8_t { kPid, kHostAndPid };

// The hidden name of this process, beside `checkpoint`, for what is not one yet (`kind` "tmp") or
// no more ("old"). Readers ignore it; what stays behind, a later CheckpointFiles::begin removes.
std::filesystem::path hidden_beside(const std::filesystem::path& checkpoint, std::string_view kind,
                                    HiddenName name);

// Of kCheckpointFiles, in the order of their tensors: checksums of what one process wrote, which
// add up to those of the tensors.
using CheckpointSums = std::array<std::vector<std::uint64_t>, kCheckpointFiles.size()>;

// What other processes join a save by.
struct CheckpointPlan {
  std::filesystem::path directory;  // absolute
  std::array<std::vector<SafetensorsSpec>, kCheckpointFiles.size()> tensors;
};

// The files of one checkpoint at a time on their way to the disk: begin, write by any number of
// threads, commit, abandon. All goes into a temporary directory (".step_00000100.tmp-PID") and
// appears under its name by one rename after everything is on the disk: whenever the program dies,
// readers find a whole checkpoint or none. One of the same step is replaced in that same moment.
//
// Of several processes one does this, and tells the others its plan: they join, write, sync and
// abandon; then it adds what their sync returned, and commits.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(std::filesystem::path run, HiddenName name = HiddenName::kPid);
  ~CheckpointFiles();
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;

  // Throws Error, also if `ranges`, of all writers together, do not cover each tensor exactly once.
  // Removes what processes that no longer exist have left behind.
  void begin(std::int64_t step, std::vector<CheckpointRange> ranges);
  // Elements from `begin` on of the tensor. Thread-safe.
  void write(std::string_view tensor, std::int64_t begin, std::span<const std::byte> bytes);
  void commit(CheckpointInfo info);

  [[nodiscard]] CheckpointPlan plan() const;
  // Throws WriteError that says so if this host does not see the files.
  void join(const CheckpointPlan& plan);
  // On return all that this process wrote is on the disk; its checksums.
  [[nodiscard]] CheckpointSums sync();
  void add(const CheckpointSums& others);

  // Leaves nothing of a save but, if it was committed, the checkpoint. What cannot be removed now
  // is removed by a later begin, and so is a checkpoint that a failed commit had put aside.
  // After join: leaves the files to who began.
  void abandon() noexcept;

  // Called before each change of the file system with a word for it, by all threads; what it throws
  // is a failure of that change. To be set while no save is under way.
  std::function<void(std::string_view change)> hook;
  // Changes so far: a thread that waits for the writers sees whether they go on. From any thread.
  [[nodiscard]] std::uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }
  // A heartbeat before each change.
  void change(std::string_view what);

 private:
  class File;
  void remove_leftovers();
  void write_text(const char* name, const std::string& text);

  const std::filesystem::path run_;
  const HiddenName name_;
  std::filesystem::path temporary_;  // empty: this process has begun no save
  std::filesystem::path aside_;      // where a replaced checkpoint goes
  FileLock lock_;
  std::vector<std::unique_ptr<File>> files_;
  std::atomic<std::uint64_t> changes_ = 0;
};

}  // namespace muo::app
