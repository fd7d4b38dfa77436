#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/host/simd_lanes.h"

// Results of src/kernels/host/simd_*.h for the same operands. V selects the implementation of
// functions whose operands do not determine it.
namespace muo::test {

using simd::AllLanes;
using simd::FirstLanes;
using simd::kLanes;

constexpr std::size_t kVector = kLanes;

// Three operands of equal length, in whole vectors.
using Operands = std::array<std::vector<float>, 3>;

// All triples of special numbers, random bits, and numbers whose sums are rounded.
inline const Operands& operands() {
  static const Operands made = [] {
    using Limits = std::numeric_limits<float>;
    std::vector<float> special;
    for (const float x :
         {0.0F, Limits::denorm_min(), 1e-40F, Limits::min(), 0.5F, 1.0F, 1.5F, 2.5F, 88.9F,
          8388607.5F, 12582912.0F, Limits::max(), Limits::infinity(), Limits::quiet_NaN(),
          std::bit_cast<float>(0x7F812345U), std::bit_cast<float>(0x3F808000U)}) {
      special.push_back(x);
      special.push_back(-x);
    }
    Operands out;
    for (const float a : special)
      for (const float b : special)
        for (const float c : special) {
          out[0].push_back(a);
          out[1].push_back(b);
          out[2].push_back(c);
        }
    std::mt19937 random(17);
    for (int i = 0; i < 20'000; ++i)
      for (std::vector<float>& x : out)
        x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    for (int i = 0; i < 20'000; ++i)
      for (std::vector<float>& x : out)
        x.push_back(static_cast<float>(random()) * 0x1p-31F - 1.0F);
    for (std::vector<float>& x : out)
      x.resize(x.size() / kVector * kVector);
    return out;
  }();
  return made;
}

// Bits of all results, by function name.
using Results = std::map<std::string, std::vector<std::uint32_t>>;

// Which NaN results from arithmetic depends on the CPU and the compiler.
inline std::uint32_t bits_of(float x, bool any_nan) {
  return any_nan && std::isnan(x) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(x);
}

template <class F32>
void append(std::vector<std::uint32_t>& bits, F32 x, bool any_nan) {
  std::array<float, kVector> lanes{};
  store(lanes.data(), x, AllLanes{});
  for (const float lane : lanes)
    bits.push_back(bits_of(lane, any_nan));
}
inline void append(std::vector<std::uint32_t>& bits, float x, bool any_nan) {
  bits.push_back(bits_of(x, any_nan));
}
inline void append(std::vector<std::uint32_t>& bits, double x, bool any_nan) {
  const std::uint64_t all = any_nan && std::isnan(x) ? 0 : std::bit_cast<std::uint64_t>(x);
  bits.push_back(static_cast<std::uint32_t>(all));
  bits.push_back(static_cast<std::uint32_t>(all >> 32));
}

// Records f(a, b, c) over all operands.
template <class V>
void apply(std::vector<std::uint32_t>& bits, bool any_nan, const auto& f) {
  const auto& [a, b, c] = operands();
  for (std::size_t i = 0; i < a.size(); i += kVector)
    append(bits,
           f(V::load(&a[i], AllLanes{}), V::load(&b[i], AllLanes{}), V::load(&c[i], AllLanes{})),
           any_nan);
}

template <class V>
void apply_arithmetic(Results& out) {
  const auto add = [&](const char* name, const auto& f) { apply<V>(out[name], true, f); };
  add("+", [](auto a, auto b, auto) { return a + b; });
  add("-", [](auto a, auto b, auto) { return a - b; });
  add("*", [](auto a, auto b, auto) { return a * b; });
  add("/", [](auto a, auto b, auto) { return a / b; });
  add("fma", [](auto a, auto b, auto c) { return fma(a, b, c); });
  add("fnma", [](auto a, auto b, auto c) { return fnma(a, b, c); });
  add("sqrt", [](auto a, auto, auto) { return sqrt(a); });
  add("round", [](auto a, auto, auto) { return round(a); });
  add("sum", [](auto a, auto, auto) { return sum(a); });
  add("F64 widen", [](auto a, auto, auto) { return sum(widen(a)); });
  add("F64 +", [](auto a, auto b, auto) { return sum(widen(a) + widen(b)); });
  add("F64 fma", [](auto a, auto b, auto c) {
    const auto x = fma(widen(a), widen(b), widen(c));  // products of floats are exact
    return sum(fma(x, x, widen(c)));
  });
  add("zero_f64", [](auto a, auto b, auto) { return sum(fma(widen(a), widen(b), V::zero_f64())); });
}

template <class V>
void apply_selections(Results& out) {
  const auto add = [&](const char* name, const auto& f) { apply<V>(out[name], false, f); };
  add("min", [](auto a, auto b, auto) { return min(a, b); });
  add("max", [](auto a, auto b, auto) { return max(a, b); });
  add("max_of", [](auto a, auto, auto) { return max_of(a); });
  add("abs", [](auto a, auto, auto) { return abs(a); });
  add("copy_sign", [](auto a, auto b, auto) { return copy_sign(abs(a), b); });
  add("select_less", [](auto a, auto b, auto c) { return select_less(a, b, c, a); });
  add("power_of_low_bits", [](auto a, auto, auto) { return power_of_low_bits(a); });
  add("interleave, lower", [](auto a, auto b, auto) { return interleave(a, b).first; });
  add("interleave, upper", [](auto a, auto b, auto) { return interleave(a, b).second; });
  add("narrow_bf16", [](auto a, auto, auto) {
    std::array<float, kVector> halves{};  // half is used by bf16
    V::store_bf16(halves.data(), a);
    return V::load(halves.data(), AllLanes{});
  });
  add("broadcast", [](auto a, auto, auto) { return V::broadcast(max_of(a)); });
}

// For all powers and results that the contract allows.
template <class V>
void apply_scale(Results& out) {
  std::vector<std::uint32_t>& bits = out["scale_by_power"];
  for (int n = -252; n <= 254; ++n) {
    const auto& [a, b, c] = operands();
    const std::size_t first = static_cast<std::size_t>(n + 252) * kVector * 7;
    std::array<float, kVector> x{};
    for (std::size_t i = 0; i < kVector; ++i) {
      x[i] = a[a.size() - 1 - first - i] * std::ldexp(1.0F, -n / 2);
      if (std::fpclassify(std::ldexp(x[i], n)) == FP_SUBNORMAL) x[i] = 0.0F;
    }
    append(bits, scale_by_power(V::load(x.data(), AllLanes{}), V::broadcast(static_cast<float>(n))),
           true);
  }
}

template <class V>
void apply_bf16(Results& out) {
  std::array<std::uint16_t, kVector> halves{};
  for (std::size_t first = 0; first < 65536; first += kVector) {
    for (std::size_t i = 0; i < kVector; ++i)
      halves[i] = static_cast<std::uint16_t>(first + i);
    append(out["widen_bf16"], V::load_bf16(halves.data()), false);
  }
}

template <class V>
void apply_tails(Results& out) {
  const float* a = operands()[2].data();  // two vectors with all special values
  const auto other = V::load(a + kVector, AllLanes{});
  for (std::int64_t count = 1; count < kLanes; ++count) {
    const FirstLanes lanes{count};
    std::array<float, kVector> stored{};
    stored.fill(3.0F);
    store(stored.data(), V::load(a, AllLanes{}), lanes);
    append(out["store, tail"], V::load(stored.data(), AllLanes{}), false);
    append(out["load, tail"], V::load(a, lanes), false);
    append(out["keep, tail"], keep(V::load(a, AllLanes{}), lanes, other), false);
  }
  append(out["keep"], keep(V::load(a, AllLanes{}), AllLanes{}, other), false);
}

// V::WideWords over words of random bits. The upper halves that products leave are not read again.
template <class V>
void apply_words(Results& out) {
  using WideWords = typename V::WideWords;
  const auto add = [](std::vector<std::uint32_t>& bits, const WideWords& words) {
    std::array<std::uint32_t, kVector> lanes{};
    store(lanes.data(), words);
    bits.insert(bits.end(), lanes.begin(), lanes.end());
  };
  std::mt19937_64 random(18);
  for (int i = 0; i < 1000; ++i) {
    // Every second one overflows the lower word.
    const std::uint64_t first = i % 2 == 0 ? random() : (random() << 32) - random() % kVector;
    const auto factor = static_cast<std::uint32_t>(random());
    const WideWords count = V::count_from(first);
    const WideWords products = wide_product(count, factor);
    add(out["count_from, lower"], count);
    add(out["count_from, upper"], upper_half(count));
    add(out["wide_product, lower"], products);
    add(out["wide_product, upper"], upper_half(products));
    add(out["WideWords ^"], products ^ WideWords{factor});
    add(out["wide_product of a product"], upper_half(wide_product(products, factor)));
  }
}

template <class V>
Results results_of() {
  Results out;
  apply_arithmetic<V>(out);
  apply_selections<V>(out);
  apply_scale<V>(out);
  apply_bf16<V>(out);
  apply_tails<V>(out);
  apply_words<V>(out);
  return out;
}

// Results of the functions that this build's kernels use, with exp, exp2 and tanh. They come from a
// library that is compiled like the kernels, for each of their CPU levels.
Results results_here();

}  // namespace muo::test
