#pragma once

#include <memory>

#include "runtime/device_group.h"

namespace muo {

// A rank whose streams can capture but not run, whose device memory has addresses but no bytes, and
// whose collectives are captured as in a DeviceGroup of `world` ranks. A run is captured on it,
// with tensors of a TraceArena, to find out what it needs: for any rank of any world, on any
// machine. Work outside a capture and launches throw Error; `barrier` does not wait.
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
