// The stand-in of products with ReLU^2, behind kernels/cuda/fused_kernels.h, in float64. With
// SIMT_FUSED=1 they are available; with SIMT_FUSED=wrong they are too, but read b in another order,
// as with a wrong memory descriptor.
#include "kernels/cuda/fused_kernels.h"

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "base/dtype.h"
#include "stand_ins/launches.h"

namespace muo::cuda {
namespace {

std::string_view variable() {
  const char* text = std::getenv("SIMT_FUSED");  // NOLINT(concurrency-mt-unsafe): no thread sets it
  return text == nullptr ? "" : text;
}

double read(const void* of, std::int64_t i) {
  return static_cast<double>(to_f32(static_cast<const BF16*>(of)[i]));
}

void compute(const FusedProblem& p, const FusedOperands& of, bool wrong) {
  for (std::int64_t row = 0; row < p.m; ++row)
    for (std::int64_t column = 0; column < p.n; ++column) {
      const std::int64_t i = row * p.n + column;
      const std::int64_t read_column = wrong ? column ^ 1 : column;
      double sum = 0;
      for (std::int64_t j = 0; j < p.k; ++j)
        sum += read(of.a, row * p.k + j) *
               read(of.b, p.backward ? j * p.n + read_column : read_column * p.k + j);
      const float x = to_f32(to_bf16(static_cast<float>(sum)));
      const float r = x < 0.0F ? 0.0F : x;
      const float root =
          p.backward ? to_f32(to_bf16(std::sqrt(static_cast<float>(read(of.y, i))))) : 0.0F;
      static_cast<BF16*>(of.d)[i] = to_bf16(p.backward ? (root + root) * x : r * r);
    }
}

}  // namespace

std::string fused_kernels_missing(int /*device*/) {
  return variable().empty() ? "none stand in (SIMT_FUSED=1)" : "";
}

void run_fused(NativeStream stream, const FusedProblem& problem, const FusedOperands& operands,
               int /*device*/, int multiprocessors) {
  MUO_CHECK(multiprocessors > 0, multiprocessors, " multiprocessors");
  stand_in::Addresses addresses{.certain = {operands.d, operands.a, operands.b}, .possible = {}};
  if (problem.backward) addresses.certain.push_back(operands.y);
  const cudaError_t error = stand_in::enqueue(
      stream, "a fused product", addresses,
      [problem, operands, wrong = variable() == "wrong"] { compute(problem, operands, wrong); });
  MUO_CHECK(error == cudaSuccess, "fused product: ", cudaGetErrorName(error));
}

}  // namespace muo::cuda
