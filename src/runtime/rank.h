#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "runtime/device_group.h"

namespace muo {

// Owns everything that a RankContext refers to, but the barrier and the progress.
class Rank {
 public:
  Rank(std::unique_ptr<Device> device, std::unique_ptr<Communicator> communicator,
       Rendezvous& barrier, RankProgress& progress, CommonMemory* common = nullptr,
       Branches branches = Branches::kThree)
      : device_(std::move(device)),
        comm_(make_stream(branches, StreamPriority::kHigh)),
        update_(make_stream(branches, StreamPriority::kLow)),
        communicator_(std::move(communicator)) {
    context_ = std::make_unique<RankContext>(RankContext{.rank = communicator_->rank(),
                                                         .world = communicator_->world(),
                                                         .device = *device_,
                                                         .compute = *compute_,
                                                         .comm = comm_ ? *comm_ : *compute_,
                                                         .update = update_ ? *update_ : *compute_,
                                                         .communicator = *communicator_,
                                                         .barrier = barrier,
                                                         .progress = progress,
                                                         .common = common});
  }
  [[nodiscard]] RankContext& context() { return *context_; }
  // Waits until its device does nothing any more, whatever became of the work.
  void finish() noexcept {
    for (Stream* stream : {&context_->compute, &context_->comm, &context_->update})
      try {
        device_->bind_thread();
        stream->synchronize();
      } catch (const std::exception&) {  // the run has failed, and said why
      }
  }

 private:
  [[nodiscard]] std::unique_ptr<Stream> make_stream(Branches branches, StreamPriority priority) {
    return branches == Branches::kOne ? nullptr : device_->make_stream(priority);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_ = device_->make_stream(StreamPriority::kNormal);
  std::unique_ptr<Stream> comm_, update_;  // null: compute serves
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<RankContext> context_;
};

}  // namespace muo
