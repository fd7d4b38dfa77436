#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/device_group.h"
#include "trainer/run/run_memory.h"
#include "trainer/train/trainer.h"

namespace muo::kit {

// Devices on which the training step of a group is captured; they train one run after another with
// it. Between two runs, the rank threads wait. Several sessions may share devices if only one of
// them trains at a time. Not thread-safe.
class StepSession {
 public:
  // Captures the step and returns when all ranks have done so. All arguments must outlive the
  // session. Throws Error and InputError as DeviceGroup::run() does.
  StepSession(const trainer::PlannedRun& run, const GroupOptions& devices,
              const data::Corpus& corpus);
  ~StepSession();  // waits for the rank threads, which free their memory
  StepSession(const StepSession&) = delete;
  StepSession& operator=(const StepSession&) = delete;

  // Returns when all ranks have ended the run. Throws Error as DeviceGroup::run() does; after that
  // the session cannot be used.
  void train(trainer::TrainingRun& run);

 private:
  enum class State : std::uint8_t { kStarting, kIdle, kTraining, kEnding, kEnded };
  void serve(const GroupOptions& devices, const data::Corpus& corpus);
  void await_next();
  void await_ranks();

  const trainer::PlannedRun& planned_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kStarting;
  trainer::TrainingRun* run_ = nullptr;  // null: the rank threads end
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace muo::kit
