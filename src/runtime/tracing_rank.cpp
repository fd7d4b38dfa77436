#include "runtime/tracing_rank.h"

#include <utility>

#include "base/check.h"
#include "runtime/host/host_communicator.h"
#include "runtime/host/host_device.h"
#include "runtime/rank.h"

namespace muo {

class TracingRank::Impl {
 public:
  Impl(int rank, int world) : group_(world, alone_), rank_(make_rank(rank)) {}
  [[nodiscard]] RankContext& context() { return rank_.context(); }

 private:
  Rank make_rank(int rank) {
    auto device = std::make_unique<HostDevice>(rank, HostDeviceOptions{.trace_only = true});
    RankStreams streams(*device);
    return {std::move(device), std::move(streams), make_host_communicator(group_, rank), alone_,
            progress_};
  }

  Rendezvous alone_{1};
  HostCommunicatorGroup group_;
  RankProgress progress_;
  Rank rank_;
};

TracingRank::TracingRank(int rank, int world) {
  MUO_CHECK(0 <= rank && rank < world, "rank ", rank, " of ", world);
  impl_ = std::make_unique<Impl>(rank, world);
}
TracingRank::~TracingRank() = default;

RankContext& TracingRank::context() { return impl_->context(); }

}  // namespace muo
