#pragma once

#include <nlohmann/json_fwd.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "kit/sweep/sweep_run.h"

namespace muo::kit {

// A sweep whose trials an external optimizer suggests (--ask-tell), with one JSON object per line
// in each direction; docs/sweeps.md specifies the messages. An invalid line is answered with an
// error message and has no other effect.
class AskTell {
 public:
  // Reads from `in` and writes to `out`; SIGPIPE must be ignored. All arguments must outlive this
  // object. Once `signal` is not 0, writing no longer waits for a reader that does not read.
  AskTell(int in, int out, SweepPlanner& planner, Scheduler& scheduler, SweepDirectory& directory,
          const std::atomic<int>& signal);

  // Adds a trial that an earlier process received, given as its line in the journal. Throws
  // InputError.
  void replay(const nlohmann::json& line);
  // Writes the first message. Throws Error, as exchange() does, if it cannot be written.
  void begin();
  // Handles the input that has arrived, without blocking for more, and writes queued messages.
  void exchange(SweepRun& run);

  // These queue a message, which exchange() writes. May be called from any thread.
  void evaluated(std::size_t trial, std::int64_t step, const trainer::EvalResult& result);
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
  std::map<std::string, std::size_t> numbers_;  // by name of the trial, as JSON text
  std::string line_;                            // incomplete line of input
  std::int64_t line_number_ = 1;
  bool closed_ = false;
  std::mutex mutex_;
  std::deque<std::string> queued_;  // messages to write
};

}  // namespace muo::kit
