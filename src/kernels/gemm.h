#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// d <- alpha * op(a) op(b) + beta * c, row-major, with fp32 accumulation. op(a) is (m, k), op(b) is
// (k, n), c and d are (m, n); all are 2-D, or all are 3-D with an equal leading batch extent. `c`
// may be absent (then beta counts as 0), may be d itself, or may be a separate tensor that does not
// overlap d. If beta is 0, c is not read; if c is absent, old contents of d are not read. d must
// not overlap a or b. For a linear layer y = x W^T use transpose_b; for dW = dy^T x use
// transpose_a; dx = dy W needs neither. All tensors are fp32; or a and b are bf16, and c and d are
// bf16 (with a single rounding, of the final value) or fp32 (weight gradients).
struct GemmArgs {
  Tensor d;    // out
  Tensor c{};  // optional
  Tensor a;
  Tensor b;
  float alpha = 1.0F;
  float beta = 0.0F;
  bool transpose_a = false;
  bool transpose_b = false;
  // Hint that a has few rows; only for 2-D products with a plain a and a transposed b, as in
  // linear layers. The host then computes each row of d by itself, so its bits do not depend
  // on the other rows.
  bool few_rows = false;
};
void gemm(Stream& stream, const GemmArgs& args);

// A product's name in reports, e.g. "NT 1024x384x1536": the transposes, then m x k x n; a batch
// of 8 adds " x8".
std::string product_shape(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t k,
                          std::int64_t n, std::int64_t batch);

// A backend with several algorithms for a product chooses by a table. Another run with the same
// table computes the product in exactly the same way. Call this before the first product.
// Algorithms are read from the table in `path`, if that file exists; a product that the table lacks
// is measured when it first occurs. Throws InputError if the file is not a table, if it was made
// with another library or GPU, or if no backend has a choice of algorithms.
struct GemmTableUse {
  std::filesystem::path path;
  bool fresh = false;    // true: ignore the file and measure every product
  bool required = true;  // false: if there is too little memory to measure, the library chooses
};
void use_gemm_table(const GemmTableUse& use);
// Writes the table to its file atomically if anything was measured since the last save, and keeps
// entries that other processes have added in the meantime. Returns the number of products
// measured. Throws Error.
std::size_t save_gemm_table(const std::filesystem::path& path);
// The library and GPU for which a table is valid.
std::string gemm_environment();
// The current table in the file's format, to be passed to other processes.
std::string gemm_table_text();
// From now on, uses the algorithms of a gemm_table_text(), also for products that were planned
// before. Call it between two captures. Returns false, without any change, if the text is for
// another environment. Throws InputError if the text is malformed.
bool adopt_gemm_table(const std::string& text);

// Implements the functions above; a backend's library registers it when it is loaded.
struct GemmBackend {
  void (*use_table)(const GemmTableUse& use) = nullptr;
  std::size_t (*save_table)(const std::filesystem::path& path) = nullptr;
  std::string (*environment)() = nullptr;
  std::string (*table_text)() = nullptr;
  bool (*adopt_table)(const std::string& text) = nullptr;
};
void register_gemm_backend(const GemmBackend& backend);

}  // namespace muo
