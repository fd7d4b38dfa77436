#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "app/run/token_count.h"
#include "app/train/alarms.h"
#include "app/train/update_sizes.h"
#include "kernels/metrics.h"

namespace muo::app {

class EventLog;

// Which messages are shown.
enum class Verbosity : std::uint8_t {
  kQuiet,  // warnings, alarms and what came out
  kUsual,
  kVerbose,  // every automatic decision
};

struct LoggerOptions {
  std::filesystem::path metrics;  // metrics.jsonl, appended to; empty: none
  std::int64_t first_step = 0;    // a resumed run's; later records are dropped first
  std::int64_t iterations = 0;    // the run's last step, for progress
  TokenCount tokens = {};
  double bytes_per_token = 0;  // for bits per byte; 0: not shown
  double flops_per_token = 0;
  double peak_flops = 0;          // of all devices, what mfu is a share of; 0: unknown, mfu is null
  std::int64_t log_every = 1;     // steps between train and update records in metrics.jsonl
  std::int64_t warmup_steps = 0;  // no alarm about the size of an update before
  std::shared_ptr<EventLog> events = {};    // TensorBoard's; null: none
  std::filesystem::path log = {};           // all messages, and progress now and then; empty: none
  int terminal = 1;                         // file descriptor of progress and messages; -1: silent
  Verbosity verbosity = Verbosity::kUsual;  // of the terminal
  bool alarms = true;
  double most_waiting = Alarms::kMostWaiting;  // for data, before there is an alarm
  std::int64_t device_memory = 0;  // bytes of all devices, for the status line; 0: the process's
};

// The run's voice: metrics.jsonl and the terminal, written by a thread of its own. Every call only
// copies into a queue that was allocated at the start, so devices do not wait for disk or terminal;
// when 4,096 records wait, the next call waits for a line to be written, and a warning says so. One
// thread calls.
//
// What cannot be written to metrics.jsonl is an Error of the next call, at the latest of close().
// So is what cannot be written for TensorBoard, unless that may fail: then a warning says so. A
// terminal that goes away is ignored: a run outlives its window.
class Logger {
 public:
  explicit Logger(const LoggerOptions& options);
  ~Logger();  // close(), but an error can no longer be reported
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  // One training step, how long it took, and how long of that it waited for its batch.
  // `bad_number`: what was not finite, if it is known.
  void train(const MetricsRecord& record, double step_ms, std::string bad_number = {},
             double waited_ms = 0);
  // What the committed update of a step did, when it is known: after the step was logged.
  void update(UpdateSizes sizes);
  // val_bpb: below zero where the tokens' bytes are unknown.
  void eval(std::int64_t step, double val_loss, double val_bpb);
  // A line, or a block of lines, for people; control characters are made harmless. Shown from a
  // verbosity on; what begins with "warning:" always is.
  void note(std::string_view text, Verbosity from = Verbosity::kUsual);
  void sample(std::int64_t step, std::string_view text);  // to both
  // What the run does that is no step: on a terminal, from a second on, a line says so. `what` is a
  // literal; null: nothing.
  void busy(const char* what);
  // Sums up the training steps so far: tokens, FLOPs, time, speed, mfu; and the last and the best
  // evaluation.
  void summary();
  // Waits until what was submitted is on the disk, or not; true: it is. From any thread, after
  // close(), too.
  bool flush(std::chrono::seconds patience = std::chrono::seconds(2));
  // Writes all that was submitted and ends the thread. Idempotent.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo::app
