#include "data/loader.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/threads.h"

namespace muo::data {
namespace {

constexpr std::int64_t kSlotAlignment = 64;  // a cache line, so that slots do not share one

Shape batch_shape(const LoaderOptions& options, std::int64_t micro_steps) {
  return {micro_steps, options.batch, options.seq_len};
}

// Aligned bytes of the inputs, or of the targets, of one slot.
std::int64_t half_bytes(const LoaderOptions& options) {
  const std::int64_t bytes =
      batch_shape(options, options.accumulation).numel() * size_of(DType::kI32);
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

}  // namespace

class Loader::Impl {
 public:
  Impl(TrainingRows& rows, const LoaderOptions& options, std::span<std::byte> slots)
      : rows_(rows),
        row_(static_cast<std::size_t>(options.seq_len) + 1),
        options_(options),
        slots_(slots),
        slot_count_(static_cast<std::int64_t>(slots.size()) / slot_bytes(options)),
        thread_(start_thread([this] { run(); })) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Batch next() {
    std::unique_lock lock(mutex_);
    MUO_CHECK(!held_, "release() the batch before calling next() again");
    changed_.wait(lock, [this] { return filled_ > released_ || error_; });
    if (filled_ == released_) std::rethrow_exception(error_);
    held_ = true;
    return slot(released_);
  }

  void release() {
    {
      const std::lock_guard lock(mutex_);
      MUO_CHECK(held_, "no batch is held");
      held_ = false;
      ++released_;
    }
    changed_.notify_all();
  }

 private:
  [[nodiscard]] Batch slot(std::int64_t index) const {
    std::byte* const begin = slots_.data() + index % slot_count_ * slot_bytes(options_);
    const std::int64_t count =
        options_.micro_steps ? options_.micro_steps(index) : options_.accumulation;
    MUO_CHECK(1 <= count && count <= options_.accumulation, count, " of ", options_.accumulation);
    const Tensor inputs{.data = begin, .shape = batch_shape(options_, count), .dtype = DType::kI32};
    Tensor targets = inputs;
    targets.data += half_bytes(options_);
    return {.inputs = inputs, .targets = targets};
  }

  void run() {
    try {
      std::int64_t first_row = options_.first_row;
      for (std::int64_t index = 0; wait_for_room(index); ++index) {
        const Batch batch = slot(index);
        if (!fill(first_row, batch)) return;
        first_row += batch.inputs.shape[0] * options_.world * options_.batch;
        {
          const std::lock_guard lock(mutex_);
          filled_ = index + 1;
        }
        changed_.notify_all();
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      changed_.notify_all();
    }
  }

  // Returns false if the loader is being destroyed.
  bool wait_for_room(std::int64_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || index - released_ < slot_count_; });
    return !stop_;
  }

  bool fill(std::int64_t first_row, const Batch& batch) {
    auto* inputs = batch.inputs.as<std::int32_t>();
    auto* targets = batch.targets.as<std::int32_t>();
    for (std::int64_t a = 0; a < batch.inputs.shape[0]; ++a) {
      for (std::int64_t b = 0; b < options_.batch; ++b) {
        if (stop_) return false;
        rows_.read(first_row + (a * options_.world + options_.rank) * options_.batch + b, row_);
        inputs = std::copy(row_.begin(), row_.end() - 1, inputs);
        targets = std::copy(row_.begin() + 1, row_.end(), targets);
      }
    }
    return true;
  }

  TrainingRows& rows_;
  std::vector<std::int32_t> row_;
  const LoaderOptions options_;
  const std::span<std::byte> slots_;
  const std::int64_t slot_count_;

  std::mutex mutex_;
  std::condition_variable changed_;  // only one side can be waiting at a time
  // Numbers of batches filled and released since the start. The thread owns slot index %
  // slot_count_ from the release of batch index - slot_count_ until filled_ exceeds index.
  std::int64_t filled_ = 0;
  std::int64_t released_ = 0;
  bool held_ = false;
  std::exception_ptr error_;
  std::atomic<bool> stop_ = false;  // atomic: it is also read between rows, without mutex_

  std::thread thread_;  // last, so that all other members exist when it starts
};

Loader::Loader(TrainingRows& rows, const LoaderOptions& options, std::span<std::byte> slots) {
  MUO_CHECK(0 <= options.rank && options.rank < options.world, "rank ", options.rank, " of ",
            options.world);
  MUO_CHECK(options.batch > 0 && options.seq_len > 0 && options.accumulation > 0 &&
                options.first_row >= 0,
            "batch ", options.batch, ", sequence ", options.seq_len, ", accumulation ",
            options.accumulation, ", first row ", options.first_row);
  const auto bytes = static_cast<std::int64_t>(slots.size());
  MUO_CHECK(bytes % slot_bytes(options) == 0 && bytes / slot_bytes(options) >= 2, bytes,
            " bytes for slots of ", slot_bytes(options));
  MUO_CHECK(reinterpret_cast<std::uintptr_t>(slots.data()) % kSlotAlignment == 0);
  impl_ = std::make_unique<Impl>(rows, options, slots);
}

Loader::~Loader() = default;

std::int64_t Loader::slot_bytes(const LoaderOptions& options) { return 2 * half_bytes(options); }

Batch Loader::next() { return impl_->next(); }

void Loader::release() { impl_->release(); }

}  // namespace muo::data
