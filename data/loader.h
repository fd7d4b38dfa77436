#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "data/training_rows.h"
#include "runtime/tensor.h"

namespace muo::data {

// Inputs and targets of one step of one rank, each (accumulation, batch, seq_len) int32 in pinned
// host memory: targets are the inputs shifted by one. Row b of micro-step a on rank r is row
// g = (a * world + r) * batch + b of the step.
struct Batch {
  Tensor inputs;
  Tensor targets;
};

struct LoaderOptions {
  int rank = 0;
  int world = 1;
  std::int64_t batch = 1;  // rows per rank and micro-step
  std::int64_t seq_len = 1;
  std::int64_t accumulation = 1;
  std::int64_t first_step = 0;
};

// Fills a ring of slots on its own thread, ahead of the consumer; step first_step comes first, so a
// run resumes by saying where. `slots` is pinned memory of a multiple of slot_bytes(options) bytes,
// at least two slots, aligned to 64 bytes; it and `rows`, which is the thread's, outlive the
// loader, and the shape of the rows is that of the options. One thread consumes. Nothing is
// allocated after construction, but by the first reading of `rows`. The destructor may be called at
// any time, with or without a batch held; it waits for at most one row to be read.
class Loader {
 public:
  Loader(TrainingRows& rows, const LoaderOptions& options, std::span<std::byte> slots);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  static std::int64_t slot_bytes(const LoaderOptions& options);

  // The next step's batch, in order; waits for the thread, and rethrows its error once the batches
  // before it are consumed. The caller holds one batch at a time, until release().
  [[nodiscard]] Batch next();
  void release();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo::data
