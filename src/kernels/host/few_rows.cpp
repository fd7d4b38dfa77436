#include "kernels/host/few_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/dispatch.h"
#include "kernels/host/simd_bf16.h"

namespace muo::host {
namespace {

// Elements of d that are computed together, each by its own chain of multiply-adds: enough to hide
// the latency of multiply-adds and to use each loaded operand several times. The kColumns rows of b
// stay in the first-level cache for all rows of a.
constexpr std::size_t kRows = 2;
constexpr std::size_t kColumns = 4;

// Calls put(row, column, a[row] . b[column]). Each dot product has sixteen partial sums, which are
// added at the end, whatever the numbers of rows and columns are.
template <std::size_t kM, std::size_t kN, class In, class Put>
void dots(const In* a, const In* b, std::int64_t k, const Put& put) {
  simd::F32 sums[kM][kN];
  for (auto& row : sums)
    std::ranges::fill(row, simd::broadcast(0.0F));
  simd::for_lanes(k, [&](std::int64_t l, auto lanes) {
    simd::F32 columns[kN];
    const In* from = b + l;
    for (simd::F32& column : columns) {
      column = simd::load(from, lanes);
      from += k;
    }
    from = a + l;
    for (auto& row : sums) {
      const simd::F32 x = simd::load(from, lanes);
      from += k;
      for (std::size_t j = 0; j < kN; ++j)
        row[j] = simd::fma(x, columns[j], row[j]);
    }
  });
  for (std::size_t i = 0; i < kM; ++i)
    for (std::size_t j = 0; j < kN; ++j)
      put(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j), simd::sum(sums[i][j]));
}

// Calls body.operator()<kCount>(i) for i = 0, kCount, ... below n, then <1> for the remainder.
template <std::size_t kCount, class Body>
void in_steps(std::int64_t n, const Body& body) {
  constexpr auto kStep = static_cast<std::int64_t>(kCount);
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep)
    body.template operator()<kCount>(i);
  for (; i < n; ++i)
    body.template operator()<1>(i);
}

template <class In, class Out>
void multiply(const GemmArgs& args) {
  const std::int64_t m = args.d.shape[0], n = args.d.shape[1], k = args.a.shape[1];
  const In* a = args.a.as<In>();
  const In* b = args.b.as<In>();
  const Out* c = args.c && args.beta != 0.0F ? args.c.as<Out>() : nullptr;
  Out* d = args.d.as<Out>();
  in_steps<kColumns>(n, [&]<std::size_t kN>(std::int64_t j) {
    in_steps<kRows>(m, [&]<std::size_t kM>(std::int64_t i) {
      dots<kM, kN>(a + i * k, b + j * k, k, [&](std::int64_t row, std::int64_t column, float sum) {
        const std::int64_t at = (i + row) * n + j + column;
        sum *= args.alpha;
        if (c != nullptr) sum += args.beta * to_f32(c[at]);
        d[at] = from_f32<Out>(sum);
      });
    });
  });
}

}  // namespace

void few_rows(const GemmArgs& args) {
  dispatch_both(args.a.dtype, args.d.dtype, [&]<class In, class Out>() {
    if constexpr (std::is_same_v<In, BF16> || std::is_same_v<Out, float>) multiply<In, Out>(args);
  });
}

}  // namespace muo::host
