#pragma once

#include <memory>

#include "runtime/device_group.h"
#include "runtime/host/host_communicator.h"
#include "runtime/host/host_device.h"

namespace muo {

// Everything that a RankContext refers to, on the host backend.
class HostRank {
 public:
  HostRank(int rank, HostCommunicatorGroup& group, const HostDeviceOptions& options)
      : device_(rank, options), communicator_(make_host_communicator(group, rank)) {
    context_ = std::make_unique<RankContext>(RankContext{.rank = rank,
                                                         .world = communicator_->world(),
                                                         .device = device_,
                                                         .compute = *compute_,
                                                         .comm = *comm_,
                                                         .update = *update_,
                                                         .communicator = *communicator_,
                                                         .barrier = group.rendezvous});
  }
  [[nodiscard]] RankContext& context() { return *context_; }

 private:
  HostDevice device_;
  std::unique_ptr<Stream> compute_ = device_.make_stream(StreamPriority::kNormal);
  std::unique_ptr<Stream> comm_ = device_.make_stream(StreamPriority::kHigh);
  std::unique_ptr<Stream> update_ = device_.make_stream(StreamPriority::kLow);
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<RankContext> context_;
};

}  // namespace muo
