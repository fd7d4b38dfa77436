#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/philox.h"
#include "runtime/parameter.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y <- elements [begin, begin + numel(y)) of a tensor's initial values: element i is a function of
// `random`'s seed and name, of `init` and of i only, the same bits on every backend and CPU, in any
// parts. `random` has the tensor's name.
struct DrawArgs {
  Tensor y;  // fp32, any shape, out; flat. Or uint16: the lower halves (base/split_float.h),
  Tensor upper = {};  // and then these, bf16, out
  CounterRandom random;
  InitialValues init;
  std::int64_t begin = 0;  // any, of 64 bits
  std::int64_t count = 1;  // elements of the whole tensor, for InitialValues::kLinear
};
void draw(Stream& stream, const DrawArgs& args);

// Their arithmetic, once for all backends. No compiler can change it by contracting multiply-adds:
// what is added to is exact, or a quotient.

// An element of the kinds that are random, from the words of its draw.
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

// Element i of `count`, InitialValues::kLinear.
MUO_HOST_DEVICE inline float linear_value(const InitialValues& init, std::int64_t i,
                                          std::int64_t count) {
  const auto last = static_cast<double>(count > 1 ? count - 1 : 1);
  return static_cast<float>(init.a + init.b * static_cast<double>(i) / last);
}

// body.operator()<kind>().
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
  MUO_FAIL("draw: kind ", static_cast<int>(kind), " is none");
}

}  // namespace muo
