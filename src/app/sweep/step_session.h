#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "app/run/run_memory.h"
#include "app/train/trainer.h"
#include "runtime/device_group.h"

namespace muo::app {

// Devices on which the step of a group is captured, and which train runs with it, one after
// another. Between two runs their threads wait. Several sessions may share devices as long as one
// of them works at a time. One thread uses it.
class StepSession {
 public:
  // Captures; returns when all ranks have. All must outlive it. Throws Error and InputError as
  // DeviceGroup::run() does.
  StepSession(const PlannedRun& run, const GroupOptions& devices, const data::Corpus& corpus);
  ~StepSession();  // waits for the ranks' threads, which free what they have
  StepSession(const StepSession&) = delete;
  StepSession& operator=(const StepSession&) = delete;

  // Returns when all ranks have come to the end of the run. Throws Error as DeviceGroup::run()
  // does; the session is then of no more use.
  void train(TrainingRun& run);

 private:
  enum class State : std::uint8_t { kStarting, kIdle, kTraining, kEnding, kEnded };
  void serve(const GroupOptions& devices, const data::Corpus& corpus);
  void await_next();
  void await_ranks();

  const PlannedRun& planned_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kStarting;
  TrainingRun* run_ = nullptr;  // null: the ranks end
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace muo::app
