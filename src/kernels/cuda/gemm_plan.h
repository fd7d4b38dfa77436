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

// Descriptors and algorithm of a problem, fixed at its first call. Plain data without resources;
// passed by value, because the library takes pointers to non-const.
struct GemmPlan {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t first{}, second{}, result{};
  cublasLtMatmulAlgo_t algorithm{};
};

// Computes a product by the plan's algorithm. `workspace` has problem.workspace bytes.
void run_plan(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& problem,
              const GemmOperands& operands, void* workspace, cudaStream_t stream);

// A plan without an algorithm.
GemmPlan describe(const GemmProblem& problem);

// Returns the library's proposals, at most kMaxCandidates, the preferred one first. All are
// deterministic and accumulate in fp32. Runs on the host only. Throws Error if there is none.
inline constexpr int kMaxCandidates = 32;
std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, GemmPlan plan,
                                             const GemmProblem& problem);

// Conversions between the library's form of an algorithm and that of a table. `restored` throws
// InputError if the table's entry is not valid for this plan.
GemmAlgorithm described(const cublasLtMatmulAlgo_t& algorithm);
cublasLtMatmulAlgo_t restored(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& problem,
                              const GemmAlgorithm& recorded);

// The fastest candidate and its time, measured on a temporary stream with temporary operands of the
// problem's size. The caller ensures that no stream of this thread is being captured and that the
// GPU is idle. Throws Error if there is not enough memory.
struct GemmMeasurement {
  cublasLtMatmulAlgo_t algorithm;
  double microseconds;
};
GemmMeasurement fastest(cublasLtHandle_t handle, GemmPlan plan, const GemmProblem& problem,
                        std::span<const cublasLtMatmulAlgo_t> algorithms);

}  // namespace muo::cuda
