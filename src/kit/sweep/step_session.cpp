#include "kit/sweep/step_session.h"

#include <chrono>

#include "base/threads.h"
#include "runtime/rank_progress.h"
#include "trainer/run/tuning.h"
#include "trainer/train/captured_rank.h"

namespace muo::kit {

StepSession::StepSession(const trainer::PlannedRun& run, const GroupOptions& devices,
                         const data::Corpus& corpus)
    : planned_(run), thread_(start_thread([this, devices, &corpus] { serve(devices, corpus); })) {
  try {
    await_ranks();
  } catch (...) {
    thread_.join();
    throw;
  }
}

StepSession::~StepSession() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kIdle) state_ = State::kEnding;
  }
  changed_.notify_all();
  thread_.join();
}

void StepSession::train(trainer::TrainingRun& run) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kIdle) {  // otherwise the ranks have failed
      state_ = State::kTraining;
      run_ = &run;
    }
  }
  changed_.notify_all();
  await_ranks();
}

// Blocks until the ranks wait for the next run or have failed.
void StepSession::await_ranks() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ == State::kIdle || state_ == State::kEnded; });
  if (failure_) std::rethrow_exception(failure_);
}

void StepSession::serve(const GroupOptions& devices, const data::Corpus& corpus) {
  std::exception_ptr failure;
  try {
    trainer::Tuning tuning(planned_.config);
    DeviceGroup ranks(devices);
    ranks.run([&](RankContext& rank) {
      trainer::CapturedRank captured(rank, planned_, corpus);
      captured.capture(corpus, &tuning);
      for (;;) {
        rank.barrier.arrive([this] { await_next(); }, "the next trial");
        if (run_ == nullptr) return;
        trainer::train_run(captured, *run_);
      }
    });
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  state_ = State::kEnded;
  changed_.notify_all();
}

// Called at the ranks' barrier by the last rank to arrive, which sends the heartbeats of all ranks.
void StepSession::await_next() {
  constexpr auto kBetweenHeartbeats = std::chrono::milliseconds(50);
  std::unique_lock lock(mutex_);
  run_ = nullptr;
  state_ = State::kIdle;
  changed_.notify_all();
  while (!changed_.wait_for(lock, kBetweenHeartbeats, [this] { return state_ != State::kIdle; }))
    RankProgress::alive();
  RankProgress::alive();
}

}  // namespace muo::kit
