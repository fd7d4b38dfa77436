#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/philox.h"
#include "runtime/parameter.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y <- elements [begin, begin + numel(y)) of a tensor's initial values. Element i depends only on
// i, `init`, and the seed and name of `random`, which has the tensor's name. Its bits are therefore
// the same on every backend and CPU, however the tensor is split.
struct DrawArgs {
  Tensor y;           // any shape, read as flat, out: fp32, or uint16 lower halves (split_float.h)
  Tensor upper = {};  // bf16, out: upper halves, if y is uint16
  CounterRandom random;
  InitialValues init;
  std::int64_t begin = 0;
  std::int64_t count = 1;  // elements of the whole tensor, for InitialValues::kLinear
};
void draw(Stream& stream, const DrawArgs& args);

// The arithmetic of all backends. Contraction to fused multiply-adds cannot change its results,
// because each addition is to an exact product or to a quotient.

// An element of a random kind, computed from the two words of its draw.
template <InitialValues::Kind kKind>
MUO_HOST_DEVICE inline float random_value(float a, std::uint32_t first, std::uint32_t second) {
  using Kind = InitialValues::Kind;
  static_assert(kKind == Kind::kNormal || kKind == Kind::kUniform || kKind == Kind::kPositive);
  if constexpr (kKind == Kind::kNormal)
    return a * static_cast<float>(box_muller(first, second));
  else if constexpr (kKind == Kind::kUniform)
    return a * (2.0F * uniform_of(first) - 1.0F);
  else
    return a * uniform_of(first);
}

// Element i of `count` elements of kind InitialValues::kLinear.
MUO_HOST_DEVICE inline float linear_value(const InitialValues& init, std::int64_t i,
                                          std::int64_t count) {
  const auto last = static_cast<double>(count > 1 ? count - 1 : 1);
  return static_cast<float>(init.a + init.b * static_cast<double>(i) / last);
}

// Calls body.operator()<kind>().
template <class Body>
void dispatch(InitialValues::Kind kind, const Body& body) {
  using Kind = InitialValues::Kind;
  switch (kind) {
    case Kind::kConstant:
      return body.template operator()<Kind::kConstant>();
    case Kind::kNormal:
      return body.template operator()<Kind::kNormal>();
    case Kind::kUniform:
      return body.template operator()<Kind::kUniform>();
    case Kind::kPositive:
      return body.template operator()<Kind::kPositive>();
    case Kind::kLinear:
      return body.template operator()<Kind::kLinear>();
  }
  MUO_FAIL("draw: unknown kind ", static_cast<int>(kind));
}

}  // namespace muo
