// The only translation unit that includes CUTLASS, which takes half a minute per kernel to compile.
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include <type_traits>

#include "base/check.h"
#include "kernels/cuda/fused_kernels.h"
#include "kernels/cuda/relu_squared.h"
#include "runtime/cuda/compute_capability.h"

namespace muo::cuda {
namespace {

using Element = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;
namespace collective = cutlass::epilogue::collective;
namespace fusion = cutlass::epilogue::fusion;

// A product's sum, rounded as a separate kernel would store it.
__device__ __forceinline__ float stored(float sum) { return to_float(from_float<BF16>(sum)); }

// Square root within 1 ulp, for normal numbers, in one instruction. The IEEE square root takes a
// dozen, whose latency nothing would hide here.
__device__ __forceinline__ float root(float y) {
  float out;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(y));
  return out;
}

// Epilogue functors on CUTLASS's fragments, which are arrays of N elements.
template <class Fragment>
struct Forward {
  CUTLASS_DEVICE Fragment operator()(const Fragment& sum) const {
    Fragment out;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Fragment::kElements; ++i)
      out[i] = relu_squared(stored(sum[i]));
    return out;
  }
};
template <class Fragment>
struct Backward {
  CUTLASS_DEVICE Fragment operator()(const Fragment& sum, const Fragment& y) const {
    Fragment out;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Fragment::kElements; ++i)
      out[i] = relu_squared_backward<BF16>(stored(sum[i]), root(y[i]));
    return out;
  }
};

template <template <class> class Function, class... Inputs>
using Epilogue = fusion::Sm90EVT<
    fusion::Sm90Compute<Function, Element, float, cutlass::FloatRoundStyle::round_to_nearest>,
    fusion::Sm90AccFetch, Inputs...>;

// Two warpgroups compute a tile together while a third one loads: 168 registers per thread, 201 to
// 225 KiB of shared memory.
template <bool kBackward>
struct Product {
  using Tile = cute::Shape<cute::_128, cute::_256, cute::_64>;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;  // two tiles share their reads of b
  using Source = std::conditional_t<kBackward, Element, void>;
  using Visitor = std::conditional_t<kBackward, Epilogue<Backward, fusion::Sm90SrcFetch<Element>>,
                                     Epilogue<Forward>>;
  using OfB = std::conditional_t<kBackward, RowMajor, cutlass::layout::ColumnMajor>;
  using End = typename collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      collective::EpilogueTileAuto, float, float, Source, RowMajor, 8, Element, RowMajor, 8,
      cutlass::epilogue::TmaWarpSpecializedCooperative, Visitor>::CollectiveOp;
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, 8, Element, OfB, 8,
      float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename End::SharedStorage))>,
      cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
  using Launch = cutlass::gemm::device::GemmUniversalAdapter<
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, End>>;
};

template <bool kBackward>
void run(NativeStream stream, const FusedProblem& p, const FusedOperands& of, int device,
         int multiprocessors) {
  using Launch = typename Product<kBackward>::Launch;
  const auto m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  // Strides of a single matrix, with batch stride 0.
  const cute::Stride<std::int64_t, cute::_1, std::int64_t> rows_of_k{p.k, {}, 0},
      rows_of_n{p.n, {}, 0};
  typename Launch::GemmKernel::StrideB of_b{};
  if constexpr (kBackward)
    cute::get<1>(of_b) = p.n;
  else
    cute::get<0>(of_b) = p.k;
  const typename Launch::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {static_cast<const Element*>(of.a), rows_of_k, static_cast<const Element*>(of.b), of_b},
      {{}, static_cast<const Element*>(of.y), rows_of_n, static_cast<Element*>(of.d), rows_of_n},
      {device, multiprocessors}};
  Launch launch;
  const auto require = [&](cutlass::Status status, const char* what) {
    MUO_CHECK(status == cutlass::Status::kSuccess, "CUTLASS: ", what, " of ", p.m, " x ", p.n,
              " x ", p.k, kBackward ? " backward: " : ": ", cutlassGetStatusString(status));
  };
  MUO_CHECK(Launch::get_workspace_size(arguments) == 0);
  require(Launch::can_implement(arguments), "product");
  require(launch.initialize(arguments, nullptr, stream), "preparing the product");
  require(launch.run(stream), "launching the product");
}

}  // namespace

std::string fused_kernels_missing(int device) {
  const int capability = compute_capability(device);
  return capability == 90 ? ""
                          : concat("they need compute capability 9.0; this GPU has ",
                                   capability / 10, ".", capability % 10);
}

void run_fused(NativeStream stream, const FusedProblem& problem, const FusedOperands& operands,
               int device, int multiprocessors) {
  const auto function = problem.backward ? &run<true> : &run<false>;
  function(stream, problem, operands, device, multiprocessors);
}

}  // namespace muo::cuda
