#include "optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/gemm.h"

namespace muo {

NewtonSchulz::NewtonSchulz(const std::string& name, Tensor u, DType dtype,
                           std::span<const Quintic> iteration, Arena& arena)
    : iteration_(iteration) {
  MUO_CHECK(iteration.size() % 2 == 1, "the result of ", iteration.size(), " steps ends in x");
  const std::int64_t n = std::min(u.shape[1], u.shape[2]);
  const Shape square{u.shape[0], n, n};
  const auto scratch = [&](const char* what, const Shape& shape) {
    return arena.tensor({.name = name + what,
                         .shape = shape,
                         .dtype = dtype,
                         .category = MemoryCategory::kWorkspace});
  };
  x_ = scratch(".x", u.shape);
  y_ = dtype == u.dtype ? u : scratch(".y", u.shape);
  gram_ = scratch(".gram", square);
  polynomial_ = scratch(".polynomial", square);
}

void NewtonSchulz::run(Stream& stream) const {
  const bool tall = x_.shape[1] > x_.shape[2];
  Tensor from = x_;
  Tensor to = y_;
  for (const Quintic& p : iteration_) {
    gemm(stream, {.d = gram_, .a = from, .b = from, .transpose_a = tall, .transpose_b = !tall});
    gemm(stream, {.d = polynomial_,
                  .c = gram_,
                  .a = gram_,
                  .b = gram_,
                  .alpha = static_cast<float>(p.c),
                  .beta = static_cast<float>(p.b)});
    gemm(stream, {.d = to,
                  .c = from,
                  .a = tall ? from : polynomial_,
                  .b = tall ? polynomial_ : from,
                  .beta = static_cast<float>(p.a)});
    std::swap(from, to);
  }
}

}  // namespace muo
