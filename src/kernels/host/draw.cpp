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

// Block by block: Philox in vectors of words, then a loop over those that the compiler vectorises.
template <Kind kKind, class Values>
void draw_random(const DrawArgs& args, const Values& y) {
  constexpr std::int64_t kBlock = 256;
  static_assert(kBlock % simd::kLanes == 0);
  alignas(64) std::array<std::uint32_t, kBlock> first;
  alignas(64) std::array<std::uint32_t, kBlock> second;
  const auto a = static_cast<float>(args.init.a);
  const std::int64_t n = args.y.numel();
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t count = std::min(kBlock, n - at);
    for (std::int64_t i = 0; i < count; i += simd::kLanes) {  // to the end of a vector
      const auto index = simd::count_from(static_cast<std::uint64_t>(args.begin + at + i));
      const auto words = args.random.words(index, upper_half(index));
      store(first.data() + i, words[0]);
      if constexpr (kKind == Kind::kNormal) store(second.data() + i, words[1]);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const auto j = static_cast<std::size_t>(i);
      y.store(at + i, random_value<kKind>(a, first[j], kKind == Kind::kNormal ? second[j] : 0));
    }
  }
}

void draw(const DrawArgs& args) {
  dispatch(args.init.kind, [&]<Kind kKind>() {
    with_master(args.y, args.upper, [&](const auto& y) {
      const std::int64_t n = args.y.numel();
      if constexpr (kKind == Kind::kConstant)
        for (std::int64_t i = 0; i < n; ++i)
          y.store(i, static_cast<float>(args.init.a));
      else if constexpr (kKind == Kind::kLinear)
        for (std::int64_t i = 0; i < n; ++i)
          y.store(i, linear_value(args.init, args.begin + i, args.count));
      else
        draw_random<kKind>(args, y);
    });
  });
}

const KernelRegistration kRegistration(&draw);

}  // namespace
}  // namespace muo::host
