#pragma once

#include <cstdint>
#include <string>

namespace muo::simt {

// The order in which blocks, warps and lanes take turns. Reverse and random orders exist to break
// kernels that are right only if threads run in the order of their numbers.
enum class Order : std::uint8_t { kForward, kReverse, kRandom };

struct Settings {
  Order order = Order::kRandom;  // SIMT_ORDER=seq, rev, or a seed: random
  std::uint64_t seed = 1;
  // SIMT_WORKERS=n: OS threads that share the blocks of a launch. Races between blocks are visible
  // with two or more, and to ThreadSanitizer.
#ifdef __SANITIZE_THREAD__
  unsigned workers = 2;
#else
  unsigned workers = 1;
#endif
  std::string architecture = "all";  // SIMT_ARCHITECTURE: the GPU whose limits hold (gpu.h)
};

// The settings of the environment; throws Error for an invalid value.
const Settings& settings();

}  // namespace muo::simt
