#include "kernels/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/unaligned.h"

namespace muo::test {
namespace {

std::int64_t hash_of(const Tensor& x) {
  KernelStream stream;
  const HostTensor out({1}, DType::kI64);
  fingerprint(stream, {.out = out, .x = x});
  return out.values<std::int64_t>()[0];
}

TEST(Fingerprint, DependsOnEveryBitAndEveryPosition) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const HostTensor x = random_tensor({3, 37}, "x").rounded(dtype);
    const std::int64_t hash = hash_of(x);
    EXPECT_EQ(hash_of(x.copy()), hash);
    std::byte* last = x.tensor().data + x.tensor().bytes() - 1;
    for (int bit = 0; bit < 8; ++bit) {
      *last ^= std::byte{1} << bit;
      EXPECT_NE(hash_of(x), hash) << name_of(dtype) << ", bit " << bit;
      *last ^= std::byte{1} << bit;
    }
    const HostTensor moved = x.copy();
    const std::int64_t size = size_of(dtype);
    std::swap_ranges(moved.tensor().data, moved.tensor().data + size, moved.tensor().data + size);
    EXPECT_NE(hash_of(moved), hash) << name_of(dtype);
  }
}

TEST(Fingerprint, DoesNotDependOnAddresses) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t n : {1, 7, 8, 4101}) {
      const HostTensor x = random_tensor({n}, "x").rounded(dtype);
      EXPECT_EQ(hash_of(Unaligned(x)), hash_of(x)) << n;
    }
}

// The finalizer of splitmix64, evaluated independently of the kernel: mix(0x3F80 + golden ratio).
TEST(Fingerprint, IsTheSumOfMixedBits) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  };
  const HostTensor ones = HostTensor({2}, std::vector<float>{1.0F, 1.0F}).rounded(DType::kBF16);
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  EXPECT_EQ(static_cast<std::uint64_t>(hash_of(ones)),
            mix(0x3F80 + kGolden) + mix(0x3F80 + 2 * kGolden));
  const HostTensor many = random_tensor({1027}, "x");
  std::uint64_t want = 0;
  for (std::size_t i = 0; i < many.values().size(); ++i)
    want += mix(std::bit_cast<std::uint32_t>(many.values()[i]) + (i + 1) * kGolden);
  EXPECT_EQ(static_cast<std::uint64_t>(hash_of(many)), want);
}

}  // namespace
}  // namespace muo::test
