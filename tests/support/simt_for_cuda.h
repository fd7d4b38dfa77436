#pragma once

#include <cstdlib>

namespace muo::test {

// For its life, the SIMT tier is what the CUDA backend is.
class SimtForCuda {
 public:
  SimtForCuda() { setenv("MUO_CUDA_PLUGIN", "muograph_simt", 1); }
  ~SimtForCuda() { unsetenv("MUO_CUDA_PLUGIN"); }
  SimtForCuda(const SimtForCuda&) = delete;
  SimtForCuda& operator=(const SimtForCuda&) = delete;
};

}  // namespace muo::test
