#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "kernels/gemm.h"

namespace muo::cuda {

// All that an algorithm may depend on: neither addresses nor the values of alpha and beta, so that
// the same product is computed the same way wherever its tensors lie.
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  DType in = DType::kF32;   // of a and b
  DType out = DType::kF32;  // of c and d
  bool transpose_a = false, transpose_b = false;
  // Not 0: d is a run of rows, from its first column on, of matrices of (whole, whole), and so is
  // c; op(a) are these rows and op(b) these columns of whole matrices.
  std::int64_t whole = 0;
  // Where beta c comes from: nowhere (beta is zero or c absent), d itself, another tensor.
  enum class Addend : std::uint8_t { kNone, kInPlace, kApart } addend = Addend::kNone;
  std::int64_t workspace = 0;  // bytes that the sums over parts of k may take
  // Bytes that the addresses of a, b, c and d are multiples of; 16, the width of the widest
  // access, stands for all above, so that a tensor's offset in an arena does not matter.
  struct Alignment {
    std::int64_t a = 16, b = 16, c = 16, d = 16;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes part of it for a 0
    friend auto operator<=>(const Alignment&, const Alignment&) = default;
  } alignment;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes part of it for a 0
  friend auto operator<=>(const GemmProblem&, const GemmProblem&) = default;
};

GemmProblem problem_of(const GemmArgs& args);  // but for the workspace, which is a stream's
// Bytes that an address is a multiple of, up to 16.
std::int64_t alignment_of(const void* address);

// One line, the same for equal problems only: "bf16 into fp32, 16 x (768 x 3072 x 768), a^T b,
// ...".
std::string text_of(const GemmProblem& problem);

// The same product as a library of column-major matrices sees it. A row-major matrix is the
// transpose of the column-major one in the same memory, so d^T = op(b)^T op(a)^T is what it is
// asked for: b first, then a, each transposed exactly if it is for us.
struct ColumnMajorMatrix {
  std::int64_t rows = 0, columns = 0;  // as stored, before any transpose
  std::int64_t leading = 0;            // elements from one column to the next
  std::int64_t stride = 0;             // and from one matrix of the batch to the next
  bool transpose = false;
};
struct ColumnMajorProblem {
  ColumnMajorMatrix first;   // our b
  ColumnMajorMatrix second;  // our a
  ColumnMajorMatrix result;  // our c and d
};
ColumnMajorProblem column_major(const GemmProblem& problem);

// d <- alpha op(a) op(b) + beta c, where the problem has c.
struct GemmOperands {
  const void* a;
  const void* b;
  const void* c;  // d where the problem has none
  void* d;
  float alpha, beta;
};

// By cuBLASLt, in the same way whenever the problem and the stream's workspace are the same. Its k
// is above 0.
void run_problem(NativeStream stream, GemmProblem problem, const GemmOperands& operands);

// d <- beta c, where a product has nothing to add (k = 0); zero if c is absent. c may be d.
void scale_into(NativeStream stream, Tensor d, Tensor c, float beta);

}  // namespace muo::cuda
