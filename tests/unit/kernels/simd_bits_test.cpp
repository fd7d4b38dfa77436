#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ios>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/host/simd_portable.h"
#include "support/simd_results.h"

namespace muo {
namespace {

namespace portable = simd::portable;

struct Portable {
  using WideWords = portable::WideWords;
  static WideWords count_from(std::uint64_t first) { return portable::count_from(first); }
  static portable::F32 load(const float* p, auto lanes) { return portable::load(p, lanes); }
  static portable::F32 broadcast(float x) { return portable::broadcast(x); }
  static portable::F64 zero_f64() { return portable::zero_f64(); }
  static portable::F32 load_bf16(const void* p) { return widen_bf16(portable::load_halves(p)); }
  static void store_bf16(void* p, portable::F32 a) { portable::store_halves(p, narrow_bf16(a)); }
};

TEST(SimdBits, IntrinsicsMatchPlainCpp) {
#ifndef __x86_64__
  GTEST_SKIP() << "the kernels of this build use no intrinsics";
#endif
  const test::Results here = test::results_here();
  for (const auto& [name, expected] : test::results_of<Portable>()) {
    const std::vector<std::uint32_t>& bits = here.at(name);
    ASSERT_EQ(bits.size(), expected.size()) << name;
    const auto [at, other] = std::ranges::mismatch(bits, expected);
    if (at != bits.end())
      ADD_FAILURE() << name << ": result " << at - bits.begin() << " is " << std::hex << *at
                    << ", that of plain C++ is " << *other;
  }
}

// FNV-1a of all results, which is the same on AVX2, AVX-512 and NEON. Only a change of exp, exp2 or
// tanh, or of the operands, may change it.
TEST(SimdBits, AreTheSameOnEveryCpu) {
  std::uint64_t all = 0;
  std::string each;
  for (const auto& [name, bits] : test::results_here()) {
    std::uint64_t hash = 0xCBF29CE484222325U;
    for (const std::uint32_t x : bits)
      hash = (hash ^ x) * 0x100000001B3U;
    all = all * 0x100000001B3U ^ hash;
    each += concat(name, ": ", hash, '\n');
  }
  EXPECT_EQ(all, 11269441266099614503U) << each;
}

}  // namespace
}  // namespace muo
