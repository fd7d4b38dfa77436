#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/metrics.h"
#include "runtime/power_meter.h"
#include "trainer/run/token_count.h"
#include "trainer/train/alarms.h"
#include "trainer/train/update_sizes.h"

namespace muo::trainer {

class EventLog;

// Verbosity of terminal messages.
enum class Verbosity : std::uint8_t {
  kQuiet,  // warnings, alarms and results
  kUsual,
  kVerbose,  // also every automatic decision
};

struct LoggerOptions {
  std::filesystem::path metrics;  // metrics.jsonl, appended to; empty: none
  // Step to resume at; records of it and later steps are dropped first.
  std::int64_t first_step = 0;
  std::int64_t iterations = 0;  // of the whole run, to show progress; 0: not known
  double time_budget = 0;       // seconds of the whole run; 0: its length is that of its steps
  double seconds_before = 0;    // of the budget, spent before this process
  TokenCount tokens = {};
  double bytes_per_token = 0;  // for bits per byte; 0: not shown
  double flops_per_token = 0;
  double peak_flops = 0;          // of all devices together, for mfu; 0: unknown, mfu is null
  std::int64_t log_every = 1;     // steps between train and update records in metrics.jsonl
  std::int64_t warmup_steps = 0;  // first step with alarms about the size of an update
  std::shared_ptr<EventLog> events = {};  // TensorBoard log; null: none
  std::filesystem::path log = {};  // file for all messages and occasional progress; empty: none
  int terminal = 1;                // file descriptor of progress and messages; -1: silent
  Verbosity verbosity = Verbosity::kUsual;  // of the terminal; `log` gets every message
  bool alarms = true;
  // Share of a step spent on data above which an alarm is raised.
  double max_waiting = Alarms::kMaxWaiting;
  std::int64_t device_memory = 0;          // in bytes, for the status line; 0: the process's memory
  std::shared_ptr<PowerMeter> power = {};  // of this process's devices; null: not logged
  std::chrono::milliseconds power_every{1000};  // drivers' counters are coarse
  int devices = 1;  // of all processes; those of other processes are assumed to use as much
};

// Writes metrics.jsonl, TensorBoard's events, output.log and the terminal on a thread of its own.
// Calls only copy into a queue allocated at the start, so that devices do not wait for the disk or
// the terminal. If the queue is full (4,096 records), the next call waits until a line is written,
// and a warning is logged. All calls except flush() must come from one thread.
//
// If metrics.jsonl cannot be written, the next call, or at the latest close(), throws WriteError.
// The same holds for TensorBoard's events unless EventLog::may_fail(); then a warning is logged. A
// terminal that disappears is ignored: the run continues.
class Logger {
 public:
  explicit Logger(const LoggerOptions& options);
  ~Logger();  // calls close() and discards its error
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  // Logs a training step, its duration, and the time it spent waiting for the batch. `bad_number`:
  // the non-finite value, if known.
  void train(const MetricsRecord& record, double step_ms, std::string bad_number = {},
             double waited_ms = 0);
  // Logs a change of the pace before a step, and the seconds of training until then.
  void pace(const Pace& pace, double seconds);
  // Logs the size of a step's committed update. Call this after train() for the step.
  void update(UpdateSizes sizes);
  // val_bpb: negative if the bytes of the tokens are unknown.
  void eval(std::int64_t step, double val_loss, double val_bpb);
  // Logs one or more lines of text, with control characters escaped. The text is shown at verbosity
  // `from` and above, or always if it begins with "warning:".
  void note(std::string_view text, Verbosity from = Verbosity::kUsual);
  void sample(std::int64_t step, std::string_view text);  // to metrics.jsonl and the terminal
  // Sets the activity, such as an evaluation, that a terminal shows after it has lasted a second.
  // `what` is a string literal; null: none.
  void busy(const char* what);
  // Logs a summary of the training steps so far (tokens, FLOPs, time, speed, mfu), and the last and
  // the best evaluation.
  void summary();
  // Waits until everything submitted is on the disk. Returns false after `patience`, or if it could
  // not be written. May be called from any thread, also after close().
  bool flush(std::chrono::seconds patience = std::chrono::seconds(2));
  // Writes everything submitted and joins the thread. Throws WriteError. Idempotent.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo::trainer
