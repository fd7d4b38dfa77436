#include "kernels/gate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/host/index_check.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// A scalar dot product: gates read a dozen channels, which are too few for vectors.
template <class X, class W>
float short_dot(const X* x, const W* w, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += to_f32(x[i]) * to_f32(w[i]);
  return sum;
}

using WeightSums = std::array<double, kMaxGateWeights>;  // sums over all rows

// dx[j] += sum over gates k of dz(k) w[k, j]; dw[k, j] += dz(k) x[j].
template <class T, class W, class Gate>
void gates_backward(std::int64_t gates, std::int64_t g, const T* x, const W* w, T* dx, double* dw,
                    const Gate& dz) {
  std::array<float, kMaxGateWeights> sums;
  std::fill_n(sums.data(), g, 0.0F);
  for (std::int64_t k = 0; k < gates; ++k) {
    const float d = dz(k);
    for (std::int64_t j = 0; j < g; ++j) {
      dw[k * g + j] += static_cast<double>(d) * static_cast<double>(to_f32(x[j]));
      sums[static_cast<std::size_t>(j)] += d * to_f32(w[k * g + j]);
    }
  }
  for (std::int64_t j = 0; j < g; ++j)
    dx[j] = from_f32<T>(to_f32(dx[j]) + sums[static_cast<std::size_t>(j)]);
}

template <class G>
void put(G* out, const double* values, std::int64_t n, bool accumulate) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double sum = accumulate ? static_cast<double>(to_f32(out[i])) + values[i] : values[i];
    out[i] = from_f32<G>(static_cast<float>(sum));
  }
}

// Calls row(i, entry) for each token i, where `entry` is the row of the table for that token.
template <class Row>
void for_token_rows(const Tensor& tokens, const Tensor& table, const Row& row) {
  dispatch(table.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < tokens.shape[0]; ++i) {
      const std::int64_t token = index_at(tokens, i, "embedding: token", 0, table.shape[0]);
      row(i, table.as<T>() + token * table.shape[1]);
    }
  });
}

void value_embedding(const ValueEmbeddingArgs& args) {
  const std::int64_t heads = args.weight.shape[0], g = args.weight.shape[1], c = args.x.shape[1];
  const std::int64_t width = args.table.shape[1], h = width / heads;
  for_token_rows(args.tokens, args.table, [&]<class T>(std::int64_t i, const T* entry) {
    for (std::int64_t k = 0; k < heads; ++k) {
      const float gate =
          3.0F * sigmoid(short_dot(args.x.as<T>() + i * c, args.weight.as<T>() + k * g, g));
      args.gates.as<float>()[i * heads + k] = gate;
      T* v = args.v.as<T>() + i * width + k * h;
      simd::add_scaled(v, gate, entry + k * h, v, h);
    }
  });
}

void value_embedding_backward(const ValueEmbeddingBackwardArgs& args) {
  const std::int64_t heads = args.weight.shape[0], g = args.weight.shape[1], c = args.x.shape[1];
  const std::int64_t width = args.table.shape[1], h = width / heads;
  WeightSums dw{};
  for_token_rows(args.tokens, args.table, [&]<class T>(std::int64_t i, const T* entry) {
    const T* dv = args.dv.as<T>() + i * width;
    gates_backward(heads, g, args.x.as<T>() + i * c, args.weight.as<T>(), args.dx.as<T>() + i * c,
                   dw.data(), [&](std::int64_t k) {
                     const float gate = args.gates.as<float>()[i * heads + k];
                     const float dgate = simd::dot(dv + k * h, entry + k * h, h);
                     return dgate * gate * (1.0F - gate / 3.0F);
                   });
  });
  dispatch(args.dweight.dtype,
           [&]<class G>() { put(args.dweight.as<G>(), dw.data(), heads * g, args.accumulate); });
}

void smear(const SmearArgs& args) {
  const std::int64_t steps = args.x.shape[1], c = args.x.shape[2];
  const float lambda = args.lambda.as<float>()[0];
  const auto* positions = data_or_null<std::int32_t>(args.positions);
  const auto* starts = data_or_null<std::int32_t>(args.starts);
  dispatch(args.x.dtype, [&]<class T>() {
    const auto before = [&](std::int64_t i) -> const T* {  // x of the previous position, or null
      const std::int64_t row = i / steps;
      const std::int64_t position =
          i % steps + (positions == nullptr ? 0 : std::int64_t{positions[row]});
      if (position == (starts == nullptr ? 0 : std::int64_t{starts[i]})) return nullptr;
      if (i % steps != 0) return args.x.as<T>() + (i - 1) * c;
      return args.previous ? args.previous.as<T>() + row * c : nullptr;
    };
    for (std::int64_t i = 0; i < args.x.shape[0] * steps; ++i) {
      const T* x = args.x.as<T>() + i * c;
      const T* previous = before(i);
      const float gate = previous == nullptr
                             ? 0.0F
                             : sigmoid(short_dot(x, args.weight.as<float>(), args.weight.shape[1]));
      args.gates.as<float>()[i] = gate;
      simd::add_scaled(args.y.as<T>() + i * c, lambda * gate, previous == nullptr ? x : previous, x,
                       c);
    }
  });
}

void smear_backward(const SmearBackwardArgs& args) {
  const std::int64_t steps = args.x.shape[1], c = args.x.shape[2], g = args.weight.shape[1];
  const float lambda = args.lambda.as<float>()[0];
  const auto* gates = args.gates.as<float>();
  WeightSums dw{};
  double dlambda = 0;
  dispatch(args.x.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < args.x.shape[0] * steps; ++i) {
      const std::int64_t position = i % steps;
      const T* dy = args.dy.as<T>() + i * c;
      const T* x = args.x.as<T>() + i * c;
      T* dx = args.dx.as<T>() + i * c;
      const bool last = position + 1 == steps;
      simd::add_scaled(dx, last ? 0.0F : lambda * gates[i + 1], last ? dy : dy + c, dy, c);
      if (position == 0) continue;
      const float dgate = simd::dot(dy, x - c, c);  // gradient of lambda * gate
      dlambda += static_cast<double>(gates[i]) * static_cast<double>(dgate);
      gates_backward(1, g, x, args.weight.as<float>(), dx, dw.data(),
                     [&](std::int64_t) { return dgate * lambda * gates[i] * (1.0F - gates[i]); });
    }
  });
  put(args.dweight.as<float>(), dw.data(), g, args.accumulate);
  put(args.dlambda.as<float>(), &dlambda, 1, args.accumulate);
}

const KernelRegistration kRegistration(&value_embedding, &value_embedding_backward, &smear,
                                       &smear_backward);

}  // namespace
}  // namespace muo::host
