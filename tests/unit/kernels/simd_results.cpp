#include "support/simd_results.h"

#include "kernels/host/simd_bf16.h"

namespace muo::test {
namespace {

struct Here {
  using WideWords = simd::WideWords;
  static WideWords count_from(std::uint64_t first) { return simd::count_from(first); }
  static simd::F32 load(const float* p, auto lanes) { return simd::load(p, lanes); }
  static simd::F32 broadcast(float x) { return simd::broadcast(x); }
  static simd::F64 zero_f64() { return simd::zero_f64(); }
  static simd::F32 load_bf16(const void* p) { return simd::widen_bf16(simd::load_halves(p)); }
  static void store_bf16(void* p, simd::F32 a) { simd::store_halves(p, simd::narrow_bf16(a)); }
};

}  // namespace

Results results_here() {
  Results out = results_of<Here>();
  apply<Here>(out["exp"], true, [](auto a, auto, auto) { return simd::exp(a); });
  apply<Here>(out["exp2"], true, [](auto a, auto, auto) { return simd::exp2(a); });
  apply<Here>(out["tanh"], true, [](auto a, auto, auto) { return simd::tanh(a); });
  return out;
}

}  // namespace muo::test
