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

#include "app/report/run_reader.h"

namespace muo::app {

// Runs that a page follows while they grow. Nothing is read unless somebody asks. Any thread may.
class FollowedRuns {
 public:
  // Runs, and sweeps, which stand for their trials, those too that begin later. An empty directory
  // is a run or a sweep to come. Throws InputError as require_run() for any other. Files are looked
  // at again after `pause`, however many ask.
  FollowedRuns(std::vector<std::filesystem::path> given, std::chrono::milliseconds pause);

  // What has changed since `version`, 0 for all of it, as a JSON object:
  //   "server"   another one: versions are those of another process
  //   "version"  to ask with the next time
  //   "waiting"  how many of what was given have not begun
  //   "grows"    whether more runs may come: a sweep is among them
  //   "runs"     [number, run_data()] of each run that has changed; numbers stay, from 0 on
  std::string changed_since(std::uint64_t version);

  // Ends reading that goes on, at the next run, and makes changed_since() throw Error from now on.
  void stop() { stopped_ = true; }

 private:
  struct Run {
    RunReader reader;
    std::string name = {};
    std::string data = {};  // as it is sent
    std::uint64_t version = 0;
  };

  void look();
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
  std::set<std::filesystem::path> known_;  // directories of runs_, as they were given and resolved
  std::size_t waiting_ = 0;
  bool grows_ = false;
  std::uint64_t version_ = 0;
  std::chrono::steady_clock::time_point next_look_ = {};
  std::atomic<bool> stopped_ = false;
};

}  // namespace muo::app
