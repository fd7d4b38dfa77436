#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.h"

// Maps two 32-bit words to a standard normal number by the Box-Muller transform (1958, "A note on
// the generation of random normal deviates"): sqrt(-2 ln u) cos(2 pi v) for u = (first + 1) / 2^32
// in (0, 1] and v = second / 2^32, with an error below 1e-13. The C library's log and cos differ
// between libraries and GPUs, so this uses only additions, products, fused multiply-adds, a
// division and a square root in double, which IEEE 754 rounds identically everywhere. Every product
// that is added to something is either exact or written as fma(), so the result does not depend on
// whether the compiler contracts multiply-adds.
namespace muo {

// sqrt(-2 ln u).
MUO_HOST_DEVICE inline double box_muller_radius(std::uint32_t first) {
  // 2^32 u. Converts from a signed integer because vector instructions have no unsigned conversion.
  const double n =
      static_cast<double>(static_cast<std::int32_t>(first ^ 0x80000000U)) + (0x1p31 + 1.0);
  // u = m 2^k with m in [sqrt(1/2), sqrt(2)). After the bits of sqrt(1/2) are subtracted, the
  // exponent field is k + 32 + 1022.
  const auto bits = std::bit_cast<std::uint64_t>(n);
  const std::uint64_t exponent = (bits - 0x0006A09E667F3BCDULL) >> 52;
  const double m = std::bit_cast<double>(bits - (exponent << 52) + (std::uint64_t{1022} << 52));
  // Places the integer in the low bits of 2^52 because there is no vector conversion from 64-bit
  // integers.
  const double k =
      std::bit_cast<double>(exponent | std::bit_cast<std::uint64_t>(0x1p52)) - (0x1p52 + 1054.0);
  // ln m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...). Since s^2 < 0.0295, truncating the series
  // before s^17/17 costs at most 3.5e-14.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 15;
  p = fma(p, z, 1.0 / 13);
  p = fma(p, z, 1.0 / 11);
  p = fma(p, z, 1.0 / 9);
  p = fma(p, z, 1.0 / 7);
  p = fma(p, z, 1.0 / 5);
  p = fma(p, z, 1.0 / 3);
  p = fma(p, z, 1.0);
  constexpr double kLn4 = 1.3862943611198906;
  return sqrt(fma(k, -kLn4, -4.0 * s * p));
}

// cos(2 pi v).
MUO_HOST_DEVICE inline double box_muller_cosine(std::uint32_t second) {
  // cos is even and cos(x) = sin(pi/2 - x), so compute the sine of y quarter turns. The value of y
  // in [-1, 1] is exact.
  const double turn = static_cast<double>(static_cast<std::int32_t>(second));
  const double y = 1.0 - fabs(turn) * 0x1p-30;
  // Taylor series: (pi/2)^(2k+1) / (2k+1)! with alternating signs. The first omitted term is
  // 4.4e-14 at y = 1.
  const double z = y * y;
  double p = 6.0669357311061955e-12;
  p = fma(p, z, -6.688035109811468e-10);
  p = fma(p, z, 5.692172921967927e-08);
  p = fma(p, z, -3.598843235212085e-06);
  p = fma(p, z, 1.6044118478735983e-04);
  p = fma(p, z, -4.681754135318688e-03);
  p = fma(p, z, 7.969262624616705e-02);
  p = fma(p, z, -6.459640975062463e-01);
  p = fma(p, z, 1.5707963267948966);
  return y * p;
}

MUO_HOST_DEVICE inline double box_muller(std::uint32_t first, std::uint32_t second) {
  return box_muller_radius(first) * box_muller_cosine(second);
}

}  // namespace muo
