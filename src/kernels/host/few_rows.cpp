#include "kernels/host/few_rows.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "kernels/dispatch.h"
#include "kernels/host/simd_bf16.h"

namespace muo::host {
namespace {

// Elements of a row of d that are computed together: rows of b that pass through the first-level
// cache for all rows of a. One chain of sums each, which is enough to hide a multiply-add's
// latency.
constexpr std::size_t kColumns = 4;

// sums[i] = a . row i of b, in sixteen partial sums that are folded at the end, whatever kCount is.
template <std::size_t kCount, class In>
std::array<float, kCount> dots(const In* a, const In* b, std::int64_t k) {
  simd::F32 sums[kCount];
  std::ranges::fill(sums, simd::broadcast(0.0F));
  simd::for_lanes(k, [&](std::int64_t l, auto lanes) {
    const simd::F32 x = simd::load(a + l, lanes);
    const In* row = b + l;
    for (simd::F32& sum : sums) {
      sum = simd::fma(x, simd::load(row, lanes), sum);
      row += k;
    }
  });
  std::array<float, kCount> out{};
  std::ranges::transform(sums, out.begin(), [](simd::F32 sum) { return simd::sum(sum); });
  return out;
}

template <class In, class Out>
void multiply(const GemmArgs& args) {
  const std::int64_t m = args.d.shape[0], n = args.d.shape[1], k = args.a.shape[1];
  const In* a = args.a.as<In>();
  const In* b = args.b.as<In>();
  const Out* c = args.c && args.beta != 0.0F ? args.c.as<Out>() : nullptr;
  Out* d = args.d.as<Out>();
  const auto put = [&](std::int64_t at, float sum) {
    sum *= args.alpha;
    if (c != nullptr) sum += args.beta * to_f32(c[at]);
    d[at] = from_f32<Out>(sum);
  };
  const auto columns = [&]<std::size_t kCount>(std::int64_t j) {
    for (std::int64_t i = 0; i < m; ++i) {
      std::int64_t at = i * n + j;
      for (const float sum : dots<kCount>(a + i * k, b + j * k, k))
        put(at++, sum);
    }
  };
  constexpr auto kStep = static_cast<std::int64_t>(kColumns);
  std::int64_t j = 0;
  for (; j + kStep <= n; j += kStep)
    columns.template operator()<kColumns>(j);
  for (; j < n; ++j)
    columns.template operator()<1>(j);
}

}  // namespace

void few_rows(const GemmArgs& args) {
  dispatch_both(args.a.dtype, args.d.dtype, [&]<class In, class Out>() {
    if constexpr (std::is_same_v<In, BF16> || std::is_same_v<Out, float>) multiply<In, Out>(args);
  });
}

}  // namespace muo::host
