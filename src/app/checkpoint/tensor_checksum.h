#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace muo {

// The 64-bit checksum of a tensor is the wrapping sum, over its elements, of output number i of the
// generator SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators",
// fig. 16) seeded with the bits of element i. A sum, so ranks that hold parts of a tensor, cut
// anywhere, checksum them apart and add. It finds damage; it is no defence against forgery.
//
// `bytes` holds the elements from number `begin` of the flat tensor on; it needs no alignment.
std::uint64_t tensor_checksum(DType dtype, std::int64_t begin, std::span<const std::byte> bytes);

// Whether all numbers are: fp32 and bf16; true for other types.
bool all_finite(DType dtype, std::span<const std::byte> bytes);

}  // namespace muo
