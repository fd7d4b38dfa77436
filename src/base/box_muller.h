#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.h"

// A standard normal number from two 32-bit words, by Box and Muller (1958, "A note on the
// generation of random normal deviates"): sqrt(-2 ln u) cos(2 pi v) for u = (first + 1) / 2^32 in
// (0, 1] and v = second / 2^32, within 1e-13 of it. Not by the C library's log and cos, of which
// every library and GPU has its own: the result is made of additions, products, fused
// multiply-adds, a division and a square root in double, which IEEE 754 rounds alike everywhere. A
// product that something is added to is exact, or written as fma(): a compiler that contracts
// multiply-adds changes nothing.
namespace muo {

// sqrt(-2 ln u).
MUO_HOST_DEVICE inline double box_muller_radius(std::uint32_t first) {
  // 2^32 u. By a signed number, which vectors can convert.
  const double n =
      static_cast<double>(static_cast<std::int32_t>(first ^ 0x80000000U)) + (0x1p31 + 1.0);
  // u = m 2^k, m in [sqrt(1/2), sqrt(2)): where the bits of sqrt(1/2) are taken away, the exponent
  // field is k + 32 + 1022.
  const auto bits = std::bit_cast<std::uint64_t>(n);
  const std::uint64_t exponent = (bits - 0x0006A09E667F3BCDULL) >> 52;
  const double m = std::bit_cast<double>(bits - (exponent << 52) + (std::uint64_t{1022} << 52));
  // As the low bits of 2^52 + that: there is no conversion of vectors of 64-bit integers.
  const double k =
      std::bit_cast<double>(exponent | std::bit_cast<std::uint64_t>(0x1p52)) - (0x1p52 + 1054.0);
  // ln m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...). s^2 < 0.0295: without s^17/17 and what
  // follows it is 3.5e-14 off.
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
  // cos is even and cos(x) = sin(pi/2 - x): the sine of y quarter turns, y in [-1, 1] and exact.
  const double turn = static_cast<double>(static_cast<std::int32_t>(second));
  const double y = 1.0 - fabs(turn) * 0x1p-30;
  // Taylor: (pi/2)^(2k+1) / (2k+1)!, signs in turn. The next one is 4.4e-14 at y = 1.
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
