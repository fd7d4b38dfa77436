#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/enum_names.h"

namespace muo {

// kBytes is for plain structs in device memory (StepScalars, HyperParameters), kU16 for the lower
// halves of fp32 numbers (base/split_float.h).
enum class DType : std::uint8_t { kF32, kBF16, kF64, kI32, kI64, kBytes, kU16 };
constexpr auto names_of(DType) {
  return name_list("fp32", "bf16", "fp64", "int32", "int64", "bytes", "uint16");
}

// A bfloat16 value as stored: the upper half of an IEEE float.
struct BF16 {
  std::uint16_t bits = 0;
};

constexpr float to_f32(BF16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }
constexpr float to_f32(float value) { return value; }
// Rounds to nearest, ties to even; a NaN stays a NaN.
constexpr BF16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((nan ? bits | 0x400000U : rounded) >> 16)};
}

template <class T>
constexpr T from_f32(float value) {
  if constexpr (std::is_same_v<T, BF16>)
    return to_bf16(value);
  else
    return static_cast<T>(value);
}

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kU16:
      return 2;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kBytes:
      return 1;
  }
  return 0;
}

template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this type");
  return DType::kF32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::kF32;
template <>
inline constexpr DType dtype_of<BF16> = DType::kBF16;
template <>
inline constexpr DType dtype_of<double> = DType::kF64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::kI32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::kI64;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::kU16;
template <>
inline constexpr DType dtype_of<std::byte> = DType::kBytes;

}  // namespace muo
