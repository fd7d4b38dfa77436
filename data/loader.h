#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "data/training_rows.h"
#include "runtime/tensor.h"

namespace muo::data {

// Inputs and targets of one step on one rank, each (micro-steps, batch, seq_len) int32 in pinned
// host memory; targets are the inputs shifted by one. Row b of micro-step a on rank r is row
// (a * world + r) * batch + b of the step.
struct Batch {
  Tensor inputs;
  Tensor targets;
};

struct LoaderOptions {
  int rank = 0;
  int world = 1;
  std::int64_t batch = 1;  // rows per rank and micro-step
  std::int64_t seq_len = 1;
  std::int64_t accumulation = 1;  // micro-steps of the largest step
  std::int64_t first_row = 0;     // number, since the run's start, of the first step's row 0
  // The micro-steps of step i, counted from the loader's first; empty: `accumulation`.
  std::function<std::int64_t(std::int64_t i)> micro_steps = {};

  [[nodiscard]] std::int64_t rows_per_step() const { return accumulation * world * batch; }
};

// Fills a ring of slots with the rows from first_row on, on a thread of its own that runs ahead of
// the consumer. To resume, a run sets first_row to the number of rows that it has trained on.
// `slots` is pinned memory, aligned to 64 bytes, of at least two slots of slot_bytes(options)
// bytes. `slots` and `rows` must outlive the loader. `rows`, with rows of seq_len, is used only by
// the loader's thread. One thread consumes. Nothing is allocated after construction except in the
// first read of `rows`. The destructor may be called at any time, with or without a batch held; it
// waits for at most one row to be read.
class Loader {
 public:
  Loader(TrainingRows& rows, const LoaderOptions& options, std::span<std::byte> slots);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  static std::int64_t slot_bytes(const LoaderOptions& options);

  // Returns the batch of the next step, and waits for it if necessary. An error on the loader's
  // thread is rethrown after the batches before it have been consumed. The caller holds one batch
  // at a time, until release().
  [[nodiscard]] Batch next();
  void release();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo::data
