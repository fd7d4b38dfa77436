#include "kernels/draw.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/host/master.h"
#include "kernels/host/simd.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

using Kind = InitialValues::Kind;

// Draws block by block: Philox in vectors of words, then a loop over the words that the
// compiler vectorises.
template <Kind kKind>
void draw_random(const DrawArgs& args, float* y, std::int64_t begin, std::int64_t n) {
  constexpr std::int64_t kBlock = 256;
  static_assert(kBlock % simd::kLanes == 0);
  alignas(64) std::array<std::uint32_t, kBlock> first;
  alignas(64) std::array<std::uint32_t, kBlock> second;
  const auto a = static_cast<float>(args.init.a);
  for (std::int64_t at = 0; at < n; at += kBlock, y += kBlock) {
    const std::int64_t count = std::min(kBlock, n - at);
    for (std::int64_t i = 0; i < count; i += simd::kLanes) {  // whole vectors, maybe beyond count
      const auto index = simd::count_from(static_cast<std::uint64_t>(begin + at + i));
      const auto words = args.random.words(index, upper_half(index));
      store(first.data() + i, words[0]);
      if constexpr (kKind == Kind::kNormal) store(second.data() + i, words[1]);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const auto j = static_cast<std::size_t>(i);
      y[i] = random_value<kKind>(a, first[j], kKind == Kind::kNormal ? second[j] : 0);
    }
  }
}

void draw(const DrawArgs& args) {
  dispatch(args.init.kind, [&]<Kind kKind>() {
    with_master<false>(args.y, args.upper, 0, args.y.numel(),
                       [&](float* y, std::int64_t from, std::int64_t n) {
                         const std::int64_t begin = args.begin + from;
                         if constexpr (kKind == Kind::kConstant)
                           std::fill_n(y, n, static_cast<float>(args.init.a));
                         else if constexpr (kKind == Kind::kLinear)
                           for (std::int64_t i = 0; i < n; ++i)
                             y[i] = linear_value(args.init, begin + i, args.count);
                         else
                           draw_random<kKind>(args, y, begin, n);
                       });
  });
}

const KernelRegistration kRegistration(&draw);

}  // namespace
}  // namespace muo::host
