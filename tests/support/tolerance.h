#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runtime/tensor.h"

// Tolerances derived from the arithmetic, and the distances that they bound.
namespace muo::test {

inline constexpr double kUnitF32 = 0x1p-24;  // unit roundoff: half the spacing at 1
inline constexpr double kUnitBF16 = 0x1p-8;  // 8 significant bits
inline constexpr double kUnitF64 = 0x1p-53;

constexpr double unit_of(DType dtype) {
  return dtype == DType::kBF16 ? kUnitBF16 : dtype == DType::kF64 ? kUnitF64 : kUnitF32;
}

// Worst relative error of `operations` roundings in sequence, such as in a sum or dot product of
// that length, relative to the sum of magnitudes (Higham 2002, "Accuracy and stability of numerical
// algorithms", lemma 3.1).
inline double worst_case(std::int64_t operations, double unit = kUnitF32) {
  const double nu = static_cast<double>(operations) * unit;
  return nu / (1.0 - nu);
}

// The same for independent roundings: lambda sqrt(n) u, which is exceeded with a probability below
// 2 exp(-lambda^2 / 2) per result, here 3e-8 (Higham & Mary 2019, "A new approach to probabilistic
// rounding error analysis", theorem 2.4).
inline double probable(std::int64_t operations, double unit = kUnitF32) {
  constexpr double kLambda = 6.0;
  return std::expm1(kLambda * std::sqrt(static_cast<double>(operations)) * unit);
}

template <class T>
double frobenius(std::span<const T> values) {
  double sum = 0;
  for (const T v : values)
    sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

// Frobenius norm of got - want; infinite if a value is NaN or the lengths differ.
template <class T>
double distance(std::span<const T> got, std::span<const double> want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  std::vector<double> difference(got.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    difference[i] = static_cast<double>(got[i]) - want[i];
  const double out = frobenius<double>(difference);
  return std::isnan(out) ? std::numeric_limits<double>::infinity() : out;
}

// distance / |want|, or the distance if want is zero.
template <class T>
double relative_error(std::span<const T> got, std::span<const double> want) {
  const double size = frobenius<double>(want);
  return size > 0 ? distance(got, want) / size : distance(got, want);
}

template <class T>
double relative_error(const std::vector<T>& got, const std::vector<double>& want) {
  return relative_error<T>(std::span<const T>(got), std::span<const double>(want));
}

// The largest |got[i] - want[i]| / scale[i], where scale[i] > 0 is the magnitude to which the
// rounding errors of element i are relative, e.g. sum_k |a_ik| |b_kj| for a product.
template <class T>
double worst_element(std::span<const T> got, std::span<const double> want,
                     std::span<const double> scale) {
  if (got.size() != want.size() || got.size() != scale.size())
    return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]) / scale[i];
    if (!(error <= std::numeric_limits<double>::max()))
      return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

// Number of floats between a and b; equal values (and +0, -0) have distance 0.
inline std::int64_t ulps_between(float a, float b) {
  const auto ordered = [](float x) {
    const auto bits = std::bit_cast<std::int32_t>(x);
    return bits < 0 ? std::int64_t{std::numeric_limits<std::int32_t>::min()} - bits
                    : std::int64_t{bits};
  };
  return std::abs(ordered(a) - ordered(b));
}

// |got - want| in units of the spacing of floats at `want`.
inline double ulp_error(float got, double want) {
  const double magnitude = std::max(std::abs(want), 0x1p-126);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

// f'(x[i]) of a scalar function of a vector, by central differences in double, with step h.
template <class Function>
std::vector<double> central_differences(const Function& f, std::vector<double> x, double h) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double saved = x[i];
    x[i] = saved + h;
    const double above = f(x);
    x[i] = saved - h;
    const double below = f(x);
    x[i] = saved;
    gradient[i] = (above - below) / (2.0 * h);
  }
  return gradient;
}

}  // namespace muo::test
