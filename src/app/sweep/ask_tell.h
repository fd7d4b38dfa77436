#pragma once

#include <nlohmann/json_fwd.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "app/sweep/sweep_run.h"

namespace muo::app {

// A sweep whose trials an outside optimizer gives (--ask-tell): one JSON object a line, in and out;
// docs/sweeps.md has the messages. What is wrong with a line is answered, and nothing else happens.
class AskTell {
 public:
  // Reads from `in`, writes to `out`, of which SIGPIPE must be ignored. All must outlive it.
  // `signal`: once it is not 0, who does not read what is written is waited for no more.
  AskTell(int in, int out, SweepPlanner& planner, Scheduler& scheduler, SweepDirectory& directory,
          const std::atomic<int>& signal);

  // A trial that an earlier process was given: `options` and `name` as the journal has them. Throws
  // InputError.
  void replay(const nlohmann::json& line);
  // The first message; throws Error, as look() does, if it cannot be written.
  void begin();
  // Takes what has come in, without waiting for more, and tells what has come out of trials.
  void look(SweepRun& run);

  // For look() to tell; from any thread.
  void evaluated(std::size_t trial, std::int64_t step, const EvalResult& result);
  void ended(std::size_t trial, const TrialResult& result);

 private:
  void read_lines(SweepRun& run);
  void take_bytes(std::string_view bytes, SweepRun& run);
  void take_line(SweepRun& run);
  void take_message(const nlohmann::json& message, SweepRun& run);
  void ask(const std::string& name, const nlohmann::json& options);
  void stop(const std::string& name, SweepRun& run);
  std::size_t add(const std::string& name, const nlohmann::json& options);
  [[nodiscard]] nlohmann::ordered_json describe(std::size_t number,
                                                const TrialResult& result) const;
  void queue(const nlohmann::ordered_json& message);
  void write(std::string_view text) const;

  const int in_, out_;
  SweepPlanner& planner_;
  Scheduler& scheduler_;
  SweepDirectory& directory_;
  const std::atomic<int>& signal_;
  std::map<std::string, std::size_t> numbers_;  // by the trials' names, which are JSON
  std::string line_;                            // as far as it has come
  std::int64_t line_number_ = 1;
  bool closed_ = false;
  std::mutex mutex_;
  std::deque<std::string> told_;  // by other threads
};

}  // namespace muo::app
