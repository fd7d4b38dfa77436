#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "kernels/gemm.h"

namespace muo::cuda {

// All properties on which the choice of an algorithm may depend. Addresses and the values of alpha
// and beta are excluded, so that a product is computed in the same way wherever its tensors are.
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  DType in = DType::kF32;   // dtype of a and b
  DType out = DType::kF32;  // dtype of c and d
  bool transpose_a = false, transpose_b = false;
  // If not 0, d and c are blocks of (whole, whole) matrices that begin in the first column, and
  // op(a) and op(b) are the corresponding rows and columns of whole matrices.
  std::int64_t whole = 0;
  // The tensor c: none (if beta is zero or c is absent), d itself, or another tensor.
  enum class Addend : std::uint8_t { kNone, kInPlace, kSeparate } addend = Addend::kNone;
  std::int64_t workspace = 0;  // bytes available for partial sums over parts of k
  // Alignment of a, b, c and d in bytes. 16, the width of the widest access, also stands for larger
  // alignments, so that a tensor's offset in an arena does not matter.
  struct Alignment {
    std::int64_t a = 16, b = 16, c = 16, d = 16;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes part of it for a 0
    friend auto operator<=>(const Alignment&, const Alignment&) = default;
  } alignment;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes part of it for a 0
  friend auto operator<=>(const GemmProblem&, const GemmProblem&) = default;
};

// Returns the problem without its workspace, which is that of the stream.
GemmProblem problem_of(const GemmArgs& args);
// Alignment of an address in bytes, at most 16.
std::int64_t alignment_of(const void* address);

// One line that identifies the problem: "bf16 into fp32, 16 x (768 x 3072 x 768), a^T b, ...".
std::string text_of(const GemmProblem& problem);

// The same product for a library of column-major matrices. A row-major matrix is the transpose of
// the column-major matrix in the same memory, so the library computes d^T = op(b)^T op(a)^T: b
// comes first, then a, each transposed as ours is.
struct ColumnMajorMatrix {
  std::int64_t rows = 0, columns = 0;  // as stored, before any transpose
  std::int64_t leading = 0;            // elements between consecutive columns
  std::int64_t stride = 0;             // elements between consecutive matrices of the batch
  bool transpose = false;
};
struct ColumnMajorProblem {
  ColumnMajorMatrix first;   // our b
  ColumnMajorMatrix second;  // our a
  ColumnMajorMatrix result;  // our c and d
};
ColumnMajorProblem column_major(const GemmProblem& problem);

// Operands of d <- alpha op(a) op(b) + beta c.
struct GemmOperands {
  const void* a;
  const void* b;
  const void* c;  // d if the problem has no c
  void* d;
  float alpha, beta;
};

// Computes a product by cuBLASLt, in the same way whenever the problem and the size of the stream's
// workspace are the same. k must be above 0.
void run_problem(NativeStream stream, GemmProblem problem, const GemmOperands& operands);

// d <- beta c, for products with k = 0; zero if c is absent. c may be d.
void scale_into(NativeStream stream, Tensor d, Tensor c, float beta);

}  // namespace muo::cuda
