#pragma once

#include <span>
#include <vector>

#include <cublasLt.h>

#include "kernels/cuda/gemm_algorithms.h"
#include "kernels/cuda/gemm_problem.h"

namespace muo::cuda {

// Throws Error with cuBLASLt's name of the failure.
#define MUO_BLAS_CHECK(call, ...)                                                          \
  do {                                                                                     \
    if (const cublasStatus_t status = (call); status != CUBLAS_STATUS_SUCCESS)             \
      MUO_FAIL(#call ": ", cublasLtGetStatusName(status) __VA_OPT__(, " ", ) __VA_ARGS__); \
  } while (false)

// How one problem is computed: descriptors and algorithm, fixed when it first comes. Plain data
// without resources; passed by value, because the library takes pointers to what is not const.
struct GemmPlan {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t first{}, second{}, result{};
  cublasLtMatmulAlgo_t algorithm{};
};

// By the plan's algorithm. `workspace` has the problem's bytes.
void run_plan(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& problem,
              const GemmOperands& operands, void* workspace, cudaStream_t stream);

// Everything but the algorithm.
GemmPlan describe(const GemmProblem& problem);

// The library's proposals, at most kMostCandidates, its favourite first; all deterministic and of
// fp32 accumulation. Runs on the host alone. Throws Error if there is none.
inline constexpr int kMostCandidates = 32;
std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, GemmPlan plan,
                                             const GemmProblem& problem);

// The two forms of an algorithm. `restored` throws InputError if the table's entry is none for this
// plan.
GemmAlgorithm described(const cublasLtMatmulAlgo_t& algorithm);
cublasLtMatmulAlgo_t restored(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& problem,
                              const GemmAlgorithm& recorded);

// The fastest candidate, on operands and a stream of its own (temporary memory of the problem's
// size), and its time. For the caller to see to: no stream of this thread captures, and the GPU has
// nothing else to do. Throws Error if that memory is not there.
struct GemmMeasurement {
  cublasLtMatmulAlgo_t algorithm;
  double microseconds;
};
GemmMeasurement fastest(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& problem,
                        std::span<const cublasLtMatmulAlgo_t> algorithms);

}  // namespace muo::cuda
