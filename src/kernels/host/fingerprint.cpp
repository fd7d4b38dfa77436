#include "kernels/fingerprint.h"

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/dispatch.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

template <class T>
std::uint64_t hash(const T* x, std::int64_t n) {
  using Bits = std::conditional_t<std::is_same_v<T, BF16>, std::uint16_t, std::uint32_t>;
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint64_t z =
        std::bit_cast<Bits>(x[i]) + (static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    sum += z ^ (z >> 31);
  }
  return sum;
}

void fingerprint(const FingerprintArgs& args) {
  dispatch(args.x.dtype, [&]<class T>() {
    *args.out.as<std::int64_t>() = static_cast<std::int64_t>(hash(args.x.as<T>(), args.x.numel()));
  });
}

const KernelRegistration kRegistration(&fingerprint);

}  // namespace
}  // namespace muo::host
