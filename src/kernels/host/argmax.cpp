#include "kernels/argmax.h"

#include <algorithm>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

// Only the first block that contains the largest value is searched for its position.
constexpr std::int64_t kBlock = 64 * simd::kLanes;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// If one operand of simd::max is NaN, the result is the second operand, the maximum so far.
template <class T>
float largest(const T* x, std::int64_t n) {
  const simd::F32 lowest = simd::broadcast(kLowest);
  simd::F32 most = lowest;
  simd::for_lanes(n, [&](std::int64_t i, auto lanes) {
    most = simd::max(simd::keep(simd::load(x + i, lanes), lanes, lowest), most);
  });
  return simd::max_of(most);
}

template <class T>
std::int32_t first_largest(const T* x, std::int64_t n) {
  float most = kLowest;
  std::int64_t from = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock)
    if (const float here = largest(x + begin, std::min(kBlock, n - begin)); here > most) {
      most = here;
      from = begin;
    }
  for (std::int64_t i = from; i < n; ++i)
    if (to_f32(x[i]) == most) return static_cast<std::int32_t>(i);
  return 0;
}

void argmax(const ArgmaxArgs& args) {
  auto* y = args.y.as<std::int32_t>();
  dispatch(args.x.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < args.x.shape[0]; ++i)
      y[i] = first_largest(args.x.as<T>() + i * args.x.shape[1], args.vocab);
  });
}

const KernelRegistration kRegistration(&argmax);

}  // namespace
}  // namespace muo::host
