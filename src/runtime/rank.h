#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "runtime/device_group.h"

namespace muo {

struct RankStreams {
  explicit RankStreams(Device& device, Branches branches = Branches::kThree)
      : compute(device.make_stream(StreamPriority::kNormal)) {
    if (branches == Branches::kOne) return;
    comm = device.make_stream(StreamPriority::kHigh);
    update = device.make_stream(StreamPriority::kLow);
  }
  std::unique_ptr<Stream> compute;
  std::unique_ptr<Stream> comm, update;  // null: `compute` is used
};

// Owns everything that a RankContext refers to, except the barrier and the progress.
class Rank {
 public:
  Rank(std::unique_ptr<Device> device, RankStreams streams,
       std::unique_ptr<Communicator> communicator, Rendezvous& barrier, RankProgress& progress,
       CommonMemory* common = nullptr, Interruption* interruption = nullptr,
       ProcessGroup* processes = nullptr)
      : device_(std::move(device)),
        streams_(std::move(streams)),
        communicator_(std::move(communicator)) {
    Stream& compute = *streams_.compute;
    context_ = std::make_unique<RankContext>(
        RankContext{.rank = communicator_->rank(),
                    .world = communicator_->world(),
                    .device = *device_,
                    .compute = compute,
                    .comm = streams_.comm ? *streams_.comm : compute,
                    .update = streams_.update ? *streams_.update : compute,
                    .communicator = *communicator_,
                    .barrier = barrier,
                    .progress = progress,
                    .common = common,
                    .interruption = interruption,
                    .processes = processes});
  }
  [[nodiscard]] RankContext& context() { return *context_; }
  // Waits until the device is idle, whether or not its work succeeded.
  void finish() noexcept {
    for (Stream* stream : {&context_->compute, &context_->comm, &context_->update})
      try {
        device_->bind_thread();
        stream->synchronize();
      } catch (const std::exception&) {  // a failure that was reported before
      }
  }

 private:
  std::unique_ptr<Device> device_;
  RankStreams streams_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<RankContext> context_;
};

}  // namespace muo
