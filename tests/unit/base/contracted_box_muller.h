#pragma once

#include <cstdint>

namespace muo::test {

// box_muller(), compiled with contraction of multiply-adds wherever the compiler chooses to, as
// nvcc compiles kernels.
double contracted_box_muller(std::uint32_t first, std::uint32_t second);

}  // namespace muo::test
