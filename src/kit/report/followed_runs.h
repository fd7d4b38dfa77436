#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kit/report/run_reader.h"

namespace muo::kit {

// Growing runs that a page follows. Files are read only on demand. Thread-safe.
class FollowedRuns {
 public:
  // `given` are directories of runs and of sweeps; a sweep stands for all its trials, including
  // those that begin later. A run or a sweep may begin later in an empty directory. For any other
  // directory, throws InputError as require_run() does. Files are checked again after `pause` at
  // the earliest, however many requests arrive.
  FollowedRuns(std::vector<std::filesystem::path> given, std::chrono::milliseconds pause);

  // Returns the changes since `version` (0: everything) as a JSON object:
  //   "server"   id of this process; versions of another process are not comparable
  //   "version"  current version, for the next call
  //   "waiting"  number of given directories in which nothing has begun
  //   "grows"    true if more runs may begin, as a sweep is among them
  //   "runs"     [number, run_data()] of each changed run; numbers are constant, from 0
  std::string changed_since(std::uint64_t version);

  // Interrupts reading before the next run, and makes changed_since() throw Error from then on.
  void stop() { stopped_ = true; }

 private:
  struct Run {
    RunReader reader;
    std::string name = {};
    std::string data = {};  // run_data()
    std::uint64_t version = 0;
  };

  void refresh();
  void find_runs();
  bool add(const std::filesystem::path& directory);
  void for_each_index(std::size_t count, const std::function<void(std::size_t)>& work) const;
  std::vector<std::size_t> read_runs();
  void name_runs(std::vector<std::size_t>& changed);

  const std::vector<std::filesystem::path> given_;
  const std::chrono::milliseconds pause_;
  const std::string server_;
  std::mutex mutex_;
  std::deque<Run> runs_;
  std::set<std::filesystem::path> known_;  // directories of runs_, both as given and resolved
  std::size_t waiting_ = 0;
  bool grows_ = false;
  std::uint64_t version_ = 0;
  std::chrono::steady_clock::time_point next_refresh_ = {};
  std::atomic<bool> stopped_ = false;
};

}  // namespace muo::kit
