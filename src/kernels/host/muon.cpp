#include "kernels/muon.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/host/lerp.h"
#include "kernels/host/master.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::host {
namespace {

// A fixed number of partial sums makes the order of summation independent of vectorisation.
constexpr std::int64_t kLanes = 16;

template <class T>
double sum_of_squares(const T* x, std::int64_t n) {
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const auto value = static_cast<double>(to_f32(x[i + j]));
      lanes[j] += value * value;
    }
  double total = 0;
  for (; i < n; ++i)
    total += static_cast<double>(to_f32(x[i])) * static_cast<double>(to_f32(x[i]));
  for (const double lane : lanes)
    total += lane;
  return total;
}

template <class T, class G, class M>
void nesterov(T* __restrict x, const G* __restrict g, const M* __restrict m,
              const StepScalars& scalars, std::int64_t n) {
  const Lerp to_momentum(1.0F - scalars.muon_momentum);
  const Lerp look_ahead(scalars.muon_look_ahead);
  for (std::int64_t i = 0; i < n; ++i) {
    const float gi = to_f32(g[i]);
    x[i] = from_f32<T>(look_ahead(gi, to_momentum(to_f32(m[i]), gi)));
  }
}

// Root mean square of the rows' norms; MuonEq scales each row to it.
double mean_norm(const float* norms, std::int64_t rows) {
  double total = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    total += static_cast<double>(norms[i]) * static_cast<double>(norms[i]);
  return std::sqrt(total / static_cast<double>(rows));
}

// The factor of a row, before the division by the norm.
double row_factor(const MuonNormalisation& how, double target, float norm) {
  return how.equilibrate ? target / std::max(static_cast<double>(norm), kMuonRowFloor) : 1.0;
}

// `norms` are the norms of the rows of x (rows, columns).
void normalise(const MuonNormalisation& how, float* x, const float* norms, std::int64_t rows,
               std::int64_t columns) {
  const double target = mean_norm(norms, rows);
  const auto factor = [&](std::int64_t i) { return row_factor(how, target, norms[i]); };
  double scaled = 0;  // |x|^2 after scaling, without another pass over x
  for (std::int64_t i = 0; i < rows; ++i)
    scaled += std::pow(static_cast<double>(norms[i]) * factor(i), 2);
  const double divisor = std::sqrt(scaled) * how.factor + how.eps;
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto scale = static_cast<float>(factor(i) / divisor);
    float* row = x + i * columns;
    for (std::int64_t j = 0; j < columns; ++j)
      row[j] *= scale;
  }
}

// In bf16, the factor and the product are rounded, and the norm is that of the rounded values.
void normalise(const MuonNormalisation& how, BF16* x, const float* norms, std::int64_t rows,
               std::int64_t columns) {
  const double target = mean_norm(norms, rows);
  double scaled = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const double factor = row_factor(how, target, norms[i]);
    const float rounded = to_f32(to_bf16(static_cast<float>(factor)));
    BF16* row = x + i * columns;
    for (std::int64_t j = 0; j < columns; ++j)
      row[j] = to_bf16(to_f32(row[j]) * rounded);
    scaled += sum_of_squares(row, columns);
  }
  const auto divisor = static_cast<float>(std::sqrt(scaled) * how.factor + how.eps);
  for (std::int64_t i = 0; i < rows * columns; ++i)
    x[i] = to_bf16(to_f32(x[i]) / divisor);
}

// Sums of squares along the short side: out[long].
void sum_along_short_side(float* out, const float* u, std::int64_t rows, std::int64_t columns) {
  if (rows >= columns) {
    for (std::int64_t i = 0; i < rows; ++i)
      out[i] = static_cast<float>(sum_of_squares(u + i * columns, columns));
    return;
  }
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t begin = 0; begin < columns; begin += kBlock) {
    const std::int64_t width = std::min(kBlock, columns - begin);
    double sums[kBlock] = {};
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* block = u + i * columns + begin;
      for (std::int64_t j = 0; j < width; ++j)
        sums[j] += static_cast<double>(block[j]) * static_cast<double>(block[j]);
    }
    for (std::int64_t j = 0; j < width; ++j)
      out[begin + j] = static_cast<float>(sums[j]);
  }
}

void scale_along_long_side(float* u, const float* variance, float scale, std::int64_t rows,
                           std::int64_t columns) {
  const auto factor = [=](std::int64_t i) {
    return scale / std::sqrt(std::max(variance[i], kMuonVarianceFloor));
  };
  if (rows >= columns) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const float f = factor(i);
      for (std::int64_t j = 0; j < columns; ++j)
        u[i * columns + j] *= f;
    }
    return;
  }
  constexpr std::int64_t kBlock = 512;
  for (std::int64_t begin = 0; begin < columns; begin += kBlock) {
    const std::int64_t width = std::min(kBlock, columns - begin);
    float factors[kBlock];
    for (std::int64_t j = 0; j < width; ++j)
      factors[j] = factor(begin + j);
    for (std::int64_t i = 0; i < rows; ++i) {
      float* block = u + i * columns + begin;
      for (std::int64_t j = 0; j < width; ++j)
        block[j] *= factors[j];
    }
  }
}

void muon_nesterov(const MuonNesterovArgs& args) {
  dispatch_both(args.grad.dtype, args.momentum.dtype, [&]<class G, class M>() {
    nesterov(args.x.as<float>(), args.grad.as<G>(), args.momentum.as<M>(),
             *args.scalars.as_struct<StepScalars>(), args.x.numel());
  });
}

template <class T, class G, class M>
void muon_input_of(const MuonInputArgs& args) {
  const std::int64_t rows = args.x.shape[1], columns = args.x.shape[2];
  const StepScalars& scalars = *args.scalars.as_struct<StepScalars>();
  const auto* momentum = data_or_null<M>(args.momentum);
  for (std::int64_t k = 0; k < args.x.shape[0]; ++k) {
    T* x = args.x.as<T>() + k * rows * columns;
    float* norms = args.row_norms.as<float>() + k * rows;
    for (std::int64_t i = 0; i < rows; ++i) {
      T* row = x + i * columns;
      const std::int64_t begin = (k * rows + i) * columns;
      const G* grad = args.grad.as<G>() + begin;
      if (momentum != nullptr)
        nesterov(row, grad, momentum + begin, scalars, columns);
      else
        simd::copy(row, grad, columns);
      norms[i] = static_cast<float>(std::sqrt(sum_of_squares(row, columns)));
    }
    normalise(args.normalisation, x, norms, rows, columns);
  }
}

void muon_input(const MuonInputArgs& args) {
  const DType momentum = args.momentum ? args.momentum.dtype : DType::kF32;
  dispatch(args.x.dtype, [&]<class T>() {
    dispatch_both(args.grad.dtype, momentum,
                  [&]<class G, class M>() { muon_input_of<T, G, M>(args); });
  });
}

void muon_scale(const MuonScaleArgs& args) {
  if (args.x.dtype == DType::kBF16)
    simd::copy(args.u.as<float>(), args.x.as<BF16>(), args.x.numel());
  else if (args.x.data != args.u.data)
    std::copy_n(args.x.as<float>(), args.x.numel(), args.u.as<float>());
  const std::int64_t rows = args.u.shape[1], columns = args.u.shape[2];
  const std::int64_t length = std::max(rows, columns);
  const auto n = static_cast<double>(std::min(rows, columns));
  const Lerp lerp(1.0F - args.scalars.as_struct<StepScalars>()->muon_beta2);
  for (std::int64_t k = 0; k < args.u.shape[0]; ++k) {
    float* u = args.u.as<float>() + k * rows * columns;
    const float* old_variance = args.variance.as<float>() + k * length;
    float* new_variance = args.new_variance.as<float>() + k * length;
    sum_along_short_side(new_variance, u, rows, columns);
    double total = 0;
    for (std::int64_t i = 0; i < length; ++i)
      total += static_cast<double>(new_variance[i]);
    const double plus =
        args.unit_update ? std::sqrt(n) / std::max(std::sqrt(total), kMuonUpdateFloor) : 1.0;
    double rescaled = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const double sum = static_cast<double>(new_variance[i]) * plus * plus;
      const float variance = lerp(old_variance[i], static_cast<float>(sum / n));
      rescaled += sum / static_cast<double>(std::max(variance, kMuonVarianceFloor));
      new_variance[i] = variance;
    }
    const double norm = plus * std::sqrt(total);
    const double scale = plus * norm / std::max(std::sqrt(rescaled), kMuonRescaleFloor);
    scale_along_long_side(u, new_variance, static_cast<float>(scale), rows, columns);
  }
}

// Stores the momentum of element i, rounded if it is bf16.
void store(float& m, float value, const RoundingNoise& /*noise*/, std::int64_t /*i*/) { m = value; }
void store(BF16& m, float value, const RoundingNoise& noise, std::int64_t i) {
  m = round_stochastically(value, first_noise(noise(i)));
}

// Updates the `n` elements from `begin` on; w are their masters.
template <class M, class G>
void commit_block(const MuonCommitArgs& args, const StepScalars& scalars,
                  const RoundingNoise& noise, float* __restrict w, std::int64_t begin,
                  std::int64_t n) {
  const auto lr = static_cast<float>(scalars.matrix_lr * args.rate);
  const float decay = lr * scalars.muon_weight_decay;
  const Lerp to_momentum(1.0F - scalars.muon_momentum);
  const float gradient_scale = scalars.gradient_scale;
  const std::int64_t first = args.rounding.begin + begin;
  M* __restrict m = args.momentum.as<M>() + begin;
  const float* __restrict u = args.u.as<float>() + begin;
  const G* __restrict g = args.grad.as<G>() + begin;
  for (std::int64_t i = 0; i < n; ++i) {
    const float decayed = u[i] * w[i] >= 0.0F ? decay * w[i] : 0.0F;
    w[i] -= lr * u[i] + decayed;
    const float mi = to_momentum(to_f32(m[i]), to_f32(g[i]) * gradient_scale);
    store(m[i], mi, noise, first + i);
  }
}

void muon_commit(const MuonCommitArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  if (scalars->commit == 0) return zero_squares(args.squares);
  if (args.variance)
    std::memcpy(args.variance.data, args.new_variance.data,
                static_cast<std::size_t>(args.variance.bytes()));
  if (!args.weight) return;
  const RoundingNoise noise(args.rounding.random, scalars->updates);
  dispatch_both(args.momentum.dtype, args.grad.dtype, [&]<class M, class G>() {
    commit_master(args.weight, args.replica, args.u.as<float>(), args.squares,
                  [&](float* w, std::int64_t begin, std::int64_t n) {
                    commit_block<M, G>(args, *scalars, noise, w, begin, n);
                  });
  });
}

const KernelRegistration kRegistration(&muon_nesterov, &muon_input, &muon_scale, &muon_commit);

}  // namespace
}  // namespace muo::host
