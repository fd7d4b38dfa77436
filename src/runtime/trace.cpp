#include "runtime/trace.h"

#include "base/check.h"
#include "runtime/host/host_rank.h"

namespace muo {

class TracingRank::Impl {
 public:
  Impl(int rank, int world) : group_(world, alone_), rank_(rank, group_, {.trace_only = true}) {}
  [[nodiscard]] RankContext& context() { return rank_.context(); }

 private:
  Rendezvous alone_{1};
  HostCommunicatorGroup group_;
  HostRank rank_;
};

TracingRank::TracingRank(int rank, int world) {
  MUO_CHECK(0 <= rank && rank < world, "rank ", rank, " of ", world);
  impl_ = std::make_unique<Impl>(rank, world);
}
TracingRank::~TracingRank() = default;

RankContext& TracingRank::context() { return impl_->context(); }

}  // namespace muo
