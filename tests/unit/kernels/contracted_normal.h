#pragma once

#include <cstdint>
#include <string_view>

namespace muo::test {

// CounterRandom::normal(), compiled with contraction of multiply-adds wherever the compiler likes,
// as nvcc compiles kernels.
float contracted_normal(std::uint64_t seed, std::string_view name, std::uint64_t index);

}  // namespace muo::test
