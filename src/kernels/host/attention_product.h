#pragma once

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/host/attention.h"
#include "kernels/host/simd_bf16.h"

// The matrix products of the host attention, for tensors of fp32 and of bf16.
//
// Operands are stored as 32-bit words. A word is one fp32 number or, if the CPU multiplies bf16,
// two bf16 numbers that are neighbours along the depth of the product, the first of them in the
// lower half. One micro-kernel serves both cases: it broadcasts one operand word by word and reads
// the other along lanes.
namespace muo::host {

using Index = std::int64_t;
using simd::F32;
using simd::kLanes;
using simd::load;
using simd::store;

// Operands with one number per word (kDepth), for tensors of Element; bf16 is widened. P and dS are
// nevertheless rounded to bf16, as they are for the matrix units of a GPU.
template <class T>
struct WideOperand {
  using Element = T;
  static constexpr Index kDepth = 1;
  using Group = F32[1];  // kDepth vectors, consecutive along the depth
  static F32 multiply_add(F32 a, F32 b, F32 sum) { return simd::fma(a, b, sum); }
  // Sixteen words, from consecutive numbers of a row.
  static F32 load_words(const T* p) { return load(p); }
  // Sixteen words, each from one lane of all vectors; the numbers must be exactly
  // representable in T.
  static F32 combine(const Group& x) { return x[0]; }
  // The same for arbitrary numbers, which are rounded to T.
  static F32 round(const Group& x) { return simd::rounded<T>(x[0]); }
  // Stores each vector, rounded to T, as words along a row; the rows are `stride` words apart.
  static void store_rows(float* row, Index /*stride*/, const Group& x) { store(row, round(x)); }
};

#ifdef __AVX512F__
// Operands with two bf16 numbers per word, for CPUs with AVX-512 BF16. Sums are fp32. The results
// differ from those of WideOperand in the order of summation, and because the instructions flush
// denormals to zero. The instructions are written in assembly: this file is compiled for the first
// CPUs with AVX-512, which lack them, so the compiler rejects the intrinsics.
struct PairedOperand {
  using Element = BF16;
  static constexpr Index kDepth = 2;
  using Group = F32[2];
  static F32 multiply_add(F32 a, F32 b, F32 sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
    return sum;
  }
  static F32 load_words(const BF16* p) { return {_mm512_loadu_ps(p)}; }
  static F32 combine(const Group& x) {
    const auto low = __builtin_bit_cast(__m512i, x[0].v);
    const auto high = __builtin_bit_cast(__m512i, x[1].v);
    return {__builtin_bit_cast(
        __m512, _mm512_or_si512(_mm512_maskz_srli_epi32(simd::detail::kAll, low, 16), high))};
  }
  static F32 round(const Group& x) {
    alignas(64) static constexpr std::uint16_t kInTurn[] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i in_turn =
        _mm512_maskz_permutexvar_epi16(kAllHalves, _mm512_load_si512(kInTurn), rounded(x));
    return {__builtin_bit_cast(__m512, in_turn)};
  }
  static void store_rows(float* row, Index stride, const Group& x) {
    const __m512i halves = rounded(x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row),
                        _mm512_maskz_extracti64x4_epi64(0xF, halves, 0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + stride),
                        _mm512_maskz_extracti64x4_epi64(0xF, halves, 1));
  }

 private:
  static constexpr __mmask32 kAllHalves = 0xFFFFFFFF;
  static __m512i rounded(const Group& x) {  // all lanes of x[0], then all lanes of x[1]
    __m512i halves;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(x[1].v), "v"(x[0].v));
    return halves;
  }
};
#endif

// Calls body.operator()<Operand>() with the operand type for tensors of `dtype` on this CPU.
template <class Body>
void dispatch_operand(DType dtype, const Body& body) {
#ifdef __AVX512F__
  if (dtype == DType::kBF16 && attention_multiplies_bf16())
    return body.template operator()<PairedOperand>();
#endif
  dispatch(dtype, [&]<class T>() { body.template operator()<WideOperand<T>>(); });
}

// Accumulators of the micro-kernel: 16 of 32 registers, or 12 of 16. With AVX-512, other shapes
// (12x2, 14x2, 6x4, 4x4, 8x3) were measured to be no faster.
#if defined(__AVX512F__)
inline constexpr int kPanelRows = 8;
inline constexpr int kPanelVectors = 2;
#else
inline constexpr int kPanelRows = 6;
inline constexpr int kPanelVectors = 1;
#endif

// c(rows R, vectors N) <- factor a b, or c + a b if kAccumulate, over `depth` words, at least one.
// a(r, k) is a[k * lda + r] if kUnitRows, else a[r * lda + k]. noinline makes the backward pass up
// to 8 % faster, and the do loop keeps accumulators in registers (both measured with g++ 12).
template <class Operand, int R, int N, bool kUnitRows, bool kAccumulate>
[[gnu::noinline]] void micro(float* c, Index ldc, const float* a, Index lda, const float* b,
                             Index ldb, Index depth, float factor) {
  F32 sum[static_cast<std::size_t>(R)][static_cast<std::size_t>(N)];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n)
      sum[r][n] = kAccumulate ? load(c + r * ldc + n * kLanes) : simd::broadcast(0.0F);
  Index k = 0;
  do {
    F32 row[static_cast<std::size_t>(N)];
    for (int n = 0; n < N; ++n)
      row[n] = load(b + k * ldb + n * kLanes);
    for (int r = 0; r < R; ++r) {
      const F32 x = simd::broadcast(kUnitRows ? a[k * lda + r] : a[r * lda + k]);
      for (int n = 0; n < N; ++n)
        sum[r][n] = Operand::multiply_add(row[n], x, sum[r][n]);
    }
  } while (++k < depth);
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n)
      store(c + r * ldc + n * kLanes,
            kAccumulate ? sum[r][n] : sum[r][n] * simd::broadcast(factor));
}

template <class Operand, int R, int N, bool kUnitRows, bool kAccumulate>
inline void panel(float* c, Index ldc, const float* a, Index lda, const float* b, Index ldb,
                  Index rows, Index depth, float factor) {
  const Index step = kUnitRows ? 1 : lda;
  for (; rows >= R; rows -= R, c += R * ldc, a += R * step)
    micro<Operand, R, N, kUnitRows, kAccumulate>(c, ldc, a, lda, b, ldb, depth, factor);
  if constexpr (R > 1)
    if (rows > 0)
      panel<Operand, (R > 4 ? 4 : R / 2), N, kUnitRows, kAccumulate>(c, ldc, a, lda, b, ldb, rows,
                                                                     depth, factor);
}

// c(rows, vectors * kLanes) <- factor a(rows, depth) b(depth, vectors * kLanes), or c + a b if
// kAccumulate. `depth` is in words.
template <class Operand, bool kUnitRows, bool kAccumulate>
inline void product(float* c, Index ldc, const float* a, Index lda, const float* b, Index ldb,
                    Index rows, Index vectors, Index depth, float factor = 1.0F) {
  for (; vectors >= kPanelVectors; vectors -= kPanelVectors) {
    panel<Operand, kPanelRows, kPanelVectors, kUnitRows, kAccumulate>(c, ldc, a, lda, b, ldb, rows,
                                                                      depth, factor);
    b += kPanelVectors * kLanes;
    c += kPanelVectors * kLanes;
  }
  if (vectors > 0)
    panel<Operand, kPanelRows, 1, kUnitRows, kAccumulate>(c, ldc, a, lda, b, ldb, rows, depth,
                                                          factor);
}

}  // namespace muo::host
