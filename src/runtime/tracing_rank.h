#pragma once

#include <memory>

#include "runtime/device_group.h"

namespace muo {

// A rank whose streams can capture but run nothing, whose device memory has addresses and no bytes,
// and whose collectives become the nodes that they are in a DeviceGroup of `world` ranks. On it a
// run is captured to see what it needs, for any rank of any world on any machine, with tensors from
// a TraceArena. Work outside a capture and launches are Errors; `barrier` lets pass at once.
class TracingRank {
 public:
  TracingRank(int rank, int world);
  ~TracingRank();
  TracingRank(const TracingRank&) = delete;
  TracingRank& operator=(const TracingRank&) = delete;

  [[nodiscard]] RankContext& context();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo
