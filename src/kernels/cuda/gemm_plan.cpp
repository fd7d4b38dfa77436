#include "kernels/cuda/gemm_plan.h"

#include <array>
#include <bit>
#include <limits>
#include <optional>

#include "base/check.h"

namespace muo::cuda {
namespace {

cudaDataType_t type_of(DType dtype) { return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }

cublasLtMatrixLayoutOpaque_t layout(const ColumnMajorMatrix& matrix, DType dtype,
                                    std::int64_t batch) {
  cublasLtMatrixLayoutOpaque_t out{};
  MUO_BLAS_CHECK(
      cublasLtMatrixLayoutInit(&out, type_of(dtype), static_cast<std::uint64_t>(matrix.rows),
                               static_cast<std::uint64_t>(matrix.columns), matrix.leading));
  MUO_CHECK(batch <= std::numeric_limits<std::int32_t>::max(), "gemm: batch is ", batch,
            ", more than 2^31 - 1");
  const auto count = static_cast<std::int32_t>(batch);
  MUO_BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(&out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof(count)));
  MUO_BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(&out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &matrix.stride, sizeof(matrix.stride)));
  return out;
}

template <class T>
void prefer(cublasLtMatmulPreferenceOpaque_t& preference,
            cublasLtMatmulPreferenceAttributes_t attribute, std::int64_t value) {
  const T typed = static_cast<T>(value);
  MUO_BLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &typed, sizeof(typed)));
}

// In the order of GemmAlgorithm::kAttributes.
constexpr std::array kAttributes = {CUBLASLT_ALGO_CONFIG_ID,
                                    CUBLASLT_ALGO_CONFIG_TILE_ID,
                                    CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                    CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
                                    CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
                                    CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                    CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
                                    CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID};
static_assert(kAttributes.size() == GemmAlgorithm::kAttributes.size());

// Empty if the library does not report it; not every algorithm has every attribute.
std::optional<std::int64_t> attribute_of(const cublasLtMatmulAlgo_t& algorithm,
                                         cublasLtMatmulAlgoConfigAttributes_t attribute) {
  std::int64_t value = 0;  // little-endian: the library's narrower types land in its low bytes
  std::size_t bytes = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, nullptr, 0, &bytes) !=
          CUBLAS_STATUS_SUCCESS ||
      bytes > sizeof(value) ||
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, bytes, &bytes) !=
          CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return value;
}

// Whether the algorithm sums in fp32 in a fixed order, as requested, and supports a c that is
// another tensor than d, which the heuristic does not consider. Unreported attributes are accepted.
bool fits(const cublasLtMatmulAlgo_t& algorithm, const GemmProblem& problem) {
  const auto scheme = attribute_of(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  if (scheme && *scheme != CUBLASLT_REDUCTION_SCHEME_NONE &&
      *scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
    return false;
  if (problem.addend != GemmProblem::Addend::kSeparate) return true;
  std::int32_t apart = 0;
  std::size_t written = 0;
  const bool said =
      cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT,
                                        &apart, sizeof(apart), &written) == CUBLAS_STATUS_SUCCESS;
  return !said || apart != 0;
}

// Whether the library itself accepts the algorithm for the plan, within the workspace.
bool accepts(cublasLtHandle_t handle, GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
             std::int64_t workspace_bytes) {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle, &plan.operation, &plan.first, &plan.second, &plan.result,
                                 &plan.result, &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         static_cast<std::int64_t>(result.workspaceSize) <= workspace_bytes;
}

}  // namespace

GemmPlan describe(const GemmProblem& problem) {
  const ColumnMajorProblem columns = column_major(problem);
  GemmPlan plan;
  // fp32 operands are multiplied in fp32: CUBLAS_COMPUTE_32F never means TF32.
  MUO_BLAS_CHECK(cublasLtMatmulDescInit(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set_operation = [&](cublasLtMatmulDescAttributes_t attribute, bool transpose) {
    const std::int32_t operation = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    MUO_BLAS_CHECK(
        cublasLtMatmulDescSetAttribute(&plan.operation, attribute, &operation, sizeof(operation)));
  };
  set_operation(CUBLASLT_MATMUL_DESC_TRANSA, columns.first.transpose);
  set_operation(CUBLASLT_MATMUL_DESC_TRANSB, columns.second.transpose);
  plan.first = layout(columns.first, problem.in, problem.batch);
  plan.second = layout(columns.second, problem.in, problem.batch);
  plan.result = layout(columns.result, problem.out, problem.batch);
  return plan;
}

std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, GemmPlan plan,
                                             const GemmProblem& problem) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  MUO_BLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
  prefer<std::uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, problem.workspace);
  // If k is split, partial sums are stored in fp32 and added in a second step, in a fixed order and
  // with a single rounding at the end. This excludes summing in place, or in the type of d.
  prefer<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  const GemmProblem::Alignment& align = problem.alignment;
  prefer<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align.b);
  prefer<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align.a);
  prefer<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align.c);
  prefer<std::uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align.d);
  std::array<cublasLtMatmulHeuristicResult_t, kMaxCandidates> results{};
  int count = 0;
  MUO_BLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle, &plan.operation, &plan.first, &plan.second,
                                                &plan.result, &plan.result, &preference,
                                                kMaxCandidates, results.data(), &count),
                 "for gemm of ", text_of(problem));
  std::vector<cublasLtMatmulAlgo_t> out;
  for (const auto& result : std::span(results).first(static_cast<std::size_t>(count)))
    if (result.state == CUBLAS_STATUS_SUCCESS && fits(result.algo, problem) &&
        accepts(handle, plan, result.algo, problem.workspace))
      out.push_back(result.algo);
  MUO_CHECK(!out.empty(), "cuBLASLt has no algorithm for gemm of ", text_of(problem));
  return out;
}

GemmAlgorithm described(const cublasLtMatmulAlgo_t& algorithm) {
  GemmAlgorithm out;
  for (std::size_t i = 0; i < kAttributes.size(); ++i)
    out.attributes[i] = attribute_of(algorithm, kAttributes[i]).value_or(GemmAlgorithm::kUnknown);
  out.words = std::bit_cast<decltype(out.words)>(algorithm);
  return out;
}

cublasLtMatmulAlgo_t restored(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& problem,
                              const GemmAlgorithm& recorded) {
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(recorded.words);
  if (!accepts(handle, plan, algorithm, problem.workspace) || !fits(algorithm, problem) ||
      described(algorithm).attributes != recorded.attributes)
    throw InputError("the table of GEMM algorithms is damaged: its entry for " + text_of(problem) +
                     " is invalid: delete the entry or measure again");
  return algorithm;
}

void run_plan(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& problem,
              const GemmOperands& operands, void* workspace, cudaStream_t stream) {
  MUO_BLAS_CHECK(cublasLtMatmul(handle, &plan.operation, &operands.alpha, operands.b, &plan.first,
                                operands.a, &plan.second, &operands.beta, operands.c, &plan.result,
                                operands.d, &plan.result, &plan.algorithm, workspace,
                                static_cast<std::size_t>(problem.workspace), stream));
}

}  // namespace muo::cuda
