#pragma once

#include <cstdint>
#include <vector>

#include "kernels/draw.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo::test {

// Elements [begin, begin + count) of a parameter's initial values.
inline std::vector<float> initial_values(const ParamSpec& spec, std::uint64_t seed,
                                         std::int64_t begin, std::int64_t count) {
  KernelStream stream;
  const HostTensor y({count});
  draw(stream, {.y = y,
                .random = {seed, spec.name},
                .init = spec.init,
                .begin = begin,
                .count = spec.shape.numel()});
  return {y.values().begin(), y.values().end()};
}
inline std::vector<float> initial_values(const ParamSpec& spec, std::uint64_t seed) {
  return initial_values(spec, seed, 0, spec.shape.numel());
}

}  // namespace muo::test
