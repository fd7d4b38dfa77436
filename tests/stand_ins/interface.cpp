// Compares the stand-ins' declarations of CUDA's runtime and of cuBLASLt with NVIDIA's headers, if
// these are installed.
#if __has_include(<cublasLt.h>)

#  include <algorithm>
#  include <cstddef>
#  include <cstdint>

#  include <cublasLt.h>
#  include <cuda_runtime_api.h>

#  include "runtime/cuda/called_alike.h"

#  define MUO_COMPARES_INTERFACES
namespace muo::stand_in::ours {
#  include "stand_ins/include/cublasLt.h"
}  // namespace muo::stand_in::ours

namespace muo::stand_in {
namespace {

namespace functions {
using namespace ours;  // NOLINT(google-build-using-namespace): their parameters
#  define MUO_TYPE(Result, name, parameters) using name = Result(*) parameters;
MUO_CUDA_FUNCTIONS(MUO_TYPE)
MUO_BLAS_FUNCTIONS(MUO_TYPE)
#  undef MUO_TYPE
}  // namespace functions
#  define MUO_CALLED_ALIKE(Result, name, parameters) \
    static_assert(called_alike_v<functions::name, decltype(&::name)>);
MUO_CUDA_FUNCTIONS(MUO_CALLED_ALIKE)
MUO_BLAS_FUNCTIONS(MUO_CALLED_ALIKE)

// Enumerators, by name.
#  define MUO_VALUES                                                                               \
    cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed,   \
        cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive,                                \
        cudaStreamCaptureStatusInvalidated, cudaMemcpyHostToHost, cudaMemcpyHostToDevice,          \
        cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault,                       \
        cudaDevAttrMultiProcessorCount, cudaDevAttrComputeCapabilityMajor,                         \
        cudaDevAttrComputeCapabilityMinor, cudaDevAttrMaxSharedMemoryPerBlockOptin,                \
        cudaMemAdviseSetPreferredLocation, cudaMemLocationTypeDevice,                              \
        cudaFuncAttributeMaxDynamicSharedMemorySize, cudaGraphInstantiateFlagUseNodePriority,      \
        cudaGraphNodeTypeConditional, cudaGraphCondTypeWhile, CUBLAS_STATUS_SUCCESS,               \
        CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INVALID_VALUE,    \
        CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_OP_N, CUBLAS_OP_T,     \
        CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,           \
        CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, CUBLASLT_MATMUL_DESC_TRANSA,                  \
        CUBLASLT_MATMUL_DESC_TRANSB, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,                     \
        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,    \
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,    \
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT, \
        CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,    \
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,                 \
        CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, CUBLASLT_ALGO_CONFIG_STAGES_ID,                        \
        CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,                \
        CUBLASLT_REDUCTION_SCHEME_NONE, CUBLASLT_REDUCTION_SCHEME_INPLACE,                         \
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE
#  define MUO_ERROR_VALUE(name, value, text) name,
namespace values {
using namespace ours;  // NOLINT(google-build-using-namespace): the names are theirs as well
constexpr std::int64_t kOurs[] = {MUO_CUDA_ERRORS(MUO_ERROR_VALUE) MUO_VALUES};
}  // namespace values
constexpr std::int64_t kTheirs[] = {MUO_CUDA_ERRORS(MUO_ERROR_VALUE) MUO_VALUES};
static_assert(std::ranges::equal(values::kOurs, kTheirs));
// NVIDIA's macros.
static_assert(ours::kStreamNonBlocking == cudaStreamNonBlocking &&
              ours::kEventDisableTiming == cudaEventDisableTiming &&
              ours::kHostAllocPortable == cudaHostAllocPortable &&
              ours::kHostAllocMapped == cudaHostAllocMapped &&
              ours::kMemAttachGlobal == cudaMemAttachGlobal);
static_assert(sizeof(ours::cublasLtMatrixLayoutOpaque_t) == sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(ours::cublasLtMatmulDescOpaque_t) == sizeof(cublasLtMatmulDescOpaque_t) &&
              sizeof(ours::cublasLtMatmulPreferenceOpaque_t) ==
                  sizeof(cublasLtMatmulPreferenceOpaque_t) &&
              sizeof(ours::cublasLtMatmulAlgo_t) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(ours::cublasLtMatmulHeuristicResult_t) ==
                  sizeof(cublasLtMatmulHeuristicResult_t));

}  // namespace
}  // namespace muo::stand_in

#endif
