// Compares the stand-in of cuBLASLt, by cuBLASLt's calls, with products that are computed here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cublasLt.h"

namespace muo::stand_in {
namespace {

constexpr std::size_t kWorkspace = 1 << 20;

struct Shape {
  std::int64_t m = 5, n = 7, k = 130;
  bool transpose_a = false, transpose_b = false, in_place = true;
  float alpha = 1.5F, beta = -0.5F;
};

// Pinned memory, which both a GPU and the test can access.
class Memory {
 public:
  explicit Memory(std::size_t bytes) {
    EXPECT_EQ(cudaHostAlloc(&data_, bytes, cudaHostAllocPortable), cudaSuccess);
  }
  ~Memory() { EXPECT_EQ(cudaFreeHost(data_), cudaSuccess); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

class BlasStandIn : public testing::Test {
 protected:
  static constexpr std::int64_t kBatch = 2;
  static constexpr std::int64_t kGap = 3;  // leading dimension minus rows

  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  struct Matrix {
    cublasLtMatrixLayoutOpaque_t layout;
    std::int64_t leading, stride;
  };
  static Matrix matrix(std::int64_t rows, std::int64_t columns) {
    Matrix out{{}, rows + kGap, (rows + kGap) * columns + 1};
    EXPECT_EQ(cublasLtMatrixLayoutInit(&out.layout, CUDA_R_32F, static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), out.leading),
              CUBLAS_STATUS_SUCCESS);
    const std::int32_t batch = kBatch;
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(&out.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                               &batch, sizeof batch),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(
        cublasLtMatrixLayoutSetAttribute(&out.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &out.stride, sizeof out.stride),
        CUBLAS_STATUS_SUCCESS);
    return out;
  }
  static cublasLtMatmulDescOpaque_t description(const Shape& s) {
    cublasLtMatmulDescOpaque_t out{};
    EXPECT_EQ(cublasLtMatmulDescInit(&out, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    const std::int32_t a = s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const std::int32_t b = s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&out, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&out, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b),
              CUBLAS_STATUS_SUCCESS);
    return out;
  }
  static std::vector<cublasLtMatmulHeuristicResult_t> proposals(cublasLtHandle_t handle,
                                                                cublasLtMatmulDescOpaque_t of,
                                                                Matrix a, Matrix b, Matrix d,
                                                                std::uint64_t workspace,
                                                                std::uint32_t alignment = 16) {
    cublasLtMatmulPreferenceOpaque_t preference{};
    EXPECT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(
        cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace),
        CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(
        cublasLtMatmulPreferenceSetAttribute(
            &preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment),
        CUBLAS_STATUS_SUCCESS);
    std::vector<cublasLtMatmulHeuristicResult_t> out(16);
    int count = 0;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, &of, &a.layout, &b.layout, &d.layout,
                                             &d.layout, &preference, 16, out.data(), &count),
              CUBLAS_STATUS_SUCCESS);
    out.resize(static_cast<std::size_t>(count));
    return out;
  }

  // Returns how many of the proposals accept the product, and checks their results.
  int check(const Shape& s) {
    Matrix a = s.transpose_a ? matrix(s.k, s.m) : matrix(s.m, s.k);
    Matrix b = s.transpose_b ? matrix(s.n, s.k) : matrix(s.k, s.n);
    Matrix d = matrix(s.m, s.n);
    cublasLtMatmulDescOpaque_t of = description(s);
    const auto numbers = [](const Matrix& x) {
      return Memory(static_cast<std::size_t>(kBatch * x.stride) * sizeof(float));
    };
    const Memory in_a = numbers(a);
    const Memory in_b = numbers(b);
    const Memory in_c = numbers(d);
    const Memory out = numbers(d);
    const Memory workspace(kWorkspace);
    const auto fill = [](const Memory& memory, const Matrix& x, std::int64_t seed) {
      for (std::int64_t i = 0; i < kBatch * x.stride; ++i)
        memory.floats()[i] = static_cast<float>((i * 37 + seed) % 17 - 8);
    };
    fill(in_a, a, 1);
    fill(in_b, b, 2);
    fill(in_c, d, 3);
    int computed = 0;
    for (const auto& proposal : proposals(handle_, of, a, b, d, kWorkspace)) {
      fill(out, d, 3);
      const cublasStatus_t status = cublasLtMatmul(
          handle_, &of, &s.alpha, in_a.floats(), &a.layout, in_b.floats(), &b.layout, &s.beta,
          s.in_place ? out.floats() : in_c.floats(), &d.layout, out.floats(), &d.layout,
          &proposal.algo, workspace.floats(), kWorkspace, stream_);
      EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      if (status == CUBLAS_STATUS_NOT_SUPPORTED) continue;
      EXPECT_EQ(status, CUBLAS_STATUS_SUCCESS);
      ++computed;
      for (std::int64_t q = 0; q < kBatch; ++q)
        for (std::int64_t j = 0; j < s.n; ++j)
          for (std::int64_t i = 0; i < s.m; ++i) {
            double sum = 0;
            for (std::int64_t p = 0; p < s.k; ++p) {
              const std::int64_t of_a = s.transpose_a ? i * a.leading + p : p * a.leading + i;
              const std::int64_t of_b = s.transpose_b ? p * b.leading + j : j * b.leading + p;
              sum += double{in_a.floats()[q * a.stride + of_a]} *
                     double{in_b.floats()[q * b.stride + of_b]};
            }
            const std::int64_t at = q * d.stride + j * d.leading + i;
            EXPECT_EQ(double{out.floats()[at]},
                      double{s.alpha} * sum + double{s.beta} * double{in_c.floats()[at]});
          }
    }
    return computed;
  }

  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
};

// With small integers, so that results are exact.
TEST_F(BlasStandIn, ProductsAreThoseOfColumnMajorMatrices) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const bool in_place : {false, true}) {
        const Shape shape{
            .transpose_a = transpose_a, .transpose_b = transpose_b, .in_place = in_place};
        EXPECT_GE(check(shape), in_place ? 5 : 4);
      }
  check({.m = 33, .n = 19, .k = 1});
  check({.beta = 0.0F});
}

TEST_F(BlasStandIn, ProposalsKeepToThePreferences) {
  const Shape s;
  const Matrix a = matrix(s.m, s.k);
  const Matrix b = matrix(s.k, s.n);
  const Matrix d = matrix(s.m, s.n);
  const auto all = proposals(handle_, description(s), a, b, d, kWorkspace);
  const auto lean = proposals(handle_, description(s), a, b, d, 0);
  const auto odd = proposals(handle_, description(s), a, b, d, kWorkspace, 4);
  EXPECT_GT(all.size(), lean.size());
  EXPECT_EQ(all.size(), odd.size() + 1);
  for (const auto& proposal : lean)
    EXPECT_EQ(proposal.workspaceSize, 0U);
}

TEST_F(BlasStandIn, WhatIsNotDocumentedSoIsRefused) {
  const Shape s;
  Matrix a = matrix(s.m, s.k);
  Matrix b = matrix(s.k, s.n);
  Matrix d = matrix(s.m, s.n);
  cublasLtMatmulDescOpaque_t of = description(s);
  auto proposal = proposals(handle_, of, a, b, d, kWorkspace).front();
  const std::int32_t narrow = 1;
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(&a.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &narrow, sizeof narrow),
            CUBLAS_STATUS_INVALID_VALUE);
  std::int64_t wide = 0;
  std::size_t written = 0;
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&proposal.algo, CUBLASLT_ALGO_CONFIG_ID, &wide,
                                                 sizeof wide, &written),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&proposal.algo, CUBLASLT_ALGO_CONFIG_ID, nullptr,
                                                 0, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof narrow);
  proposal.algo.data[0] ^= 1U;
  cublasLtMatmulHeuristicResult_t result{};
  EXPECT_EQ(cublasLtMatmulAlgoCheck(handle_, &of, &a.layout, &b.layout, &d.layout, &d.layout,
                                    &proposal.algo, &result),
            CUBLAS_STATUS_INVALID_VALUE);
  Matrix wrong = matrix(s.k + 1, s.n);
  int count = 0;
  cublasLtMatmulPreferenceOpaque_t preference{};
  EXPECT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, &of, &a.layout, &wrong.layout, &d.layout,
                                           &d.layout, &preference, 1, &result, &count),
            CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace muo::stand_in
