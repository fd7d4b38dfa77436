#pragma once

// The part of cuBLASLt that the plug-in uses; see cuda_runtime_api.h.

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"

enum cublasStatus_t : unsigned {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasOperation_t : unsigned { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasComputeType_t : unsigned { CUBLAS_COMPUTE_32F = 68 };
enum cudaDataType_t : unsigned { CUDA_R_32F = 0, CUDA_R_16BF = 14 };

enum cublasLtMatrixLayoutAttribute_t : unsigned {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
};
enum cublasLtMatmulDescAttributes_t : unsigned {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4
};
enum cublasLtMatmulPreferenceAttributes_t : unsigned {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};
enum cublasLtMatmulAlgoCapAttributes_t : unsigned {
  CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT = 4
};
enum cublasLtMatmulAlgoConfigAttributes_t : unsigned {
  CUBLASLT_ALGO_CONFIG_ID = 0,
  CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
  CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
  CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
  CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING = 4,
  CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION = 5,
  CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
  CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID = 7,
  CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8
};
enum cublasLtReductionScheme_t : unsigned {
  CUBLASLT_REDUCTION_SCHEME_NONE = 0,
  CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
  CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4
};

struct cublasLtContext;
using cublasLtHandle_t = cublasLtContext*;
struct cublasLtMatrixLayoutOpaque_t {
  std::uint64_t data[8];
};
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t*;
struct cublasLtMatmulDescOpaque_t {
  std::uint64_t data[32];
};
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t*;
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t data[8];
};
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t*;
struct cublasLtMatmulAlgo_t {
  std::uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

#define MUO_BLAS_FUNCTIONS(X)                                                                      \
  X(std::size_t, cublasLtGetVersion, ())                                                           \
  X(const char*, cublasLtGetStatusName, (cublasStatus_t))                                          \
  X(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t*))                                           \
  X(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t))                                           \
  X(cublasStatus_t, cublasLtMatrixLayoutInit,                                                      \
    (cublasLtMatrixLayout_t, cudaDataType_t, std::uint64_t, std::uint64_t, std::int64_t))          \
  X(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                              \
    (cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void*, std::size_t))           \
  X(cublasStatus_t, cublasLtMatmulDescInit,                                                        \
    (cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType_t))                                   \
  X(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                                \
    (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*, std::size_t))              \
  X(cublasStatus_t, cublasLtMatmulPreferenceInit, (cublasLtMatmulPreference_t))                    \
  X(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                          \
    (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, std::size_t))  \
  X(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                                \
    (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,       \
     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,              \
     cublasLtMatmulHeuristicResult_t*, int*))                                                      \
  X(cublasStatus_t, cublasLtMatmulAlgoCheck,                                                       \
    (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,       \
     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*,                  \
     cublasLtMatmulHeuristicResult_t*))                                                            \
  X(cublasStatus_t, cublasLtMatmulAlgoCapGetAttribute,                                             \
    (const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoCapAttributes_t, void*, std::size_t,           \
     std::size_t*))                                                                                \
  X(cublasStatus_t, cublasLtMatmulAlgoConfigGetAttribute,                                          \
    (const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t, void*, std::size_t,        \
     std::size_t*))                                                                                \
  X(cublasStatus_t, cublasLtMatmul,                                                                \
    (cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,     \
     const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t, void*, \
     cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t))

#ifndef MUO_COMPARES_INTERFACES
#  define MUO_DECLARE(Result, name, parameters) MUO_CUDA_API Result name parameters;
MUO_BLAS_FUNCTIONS(MUO_DECLARE)
#  undef MUO_DECLARE
#endif
