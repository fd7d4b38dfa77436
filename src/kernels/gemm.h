#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// d <- alpha * op(a) op(b) + beta * c, row-major, fp32 accumulation.
// op(a) is (m, k), op(b) is (k, n), c and d are (m, n); all 2-D, or all 3-D with an equal leading
// batch extent. `c` may be absent (then beta counts as 0 and old contents of d are not read), may
// be d itself, or may be a separate tensor that does not overlap d. Where beta is 0, c is not read.
// d overlaps neither a nor b. For a linear layer y = x W^T use transpose_b; for dx = dy W neither;
// for dW = dy^T x transpose_a.
// All fp32; or a and b bf16, with c and d bf16 (one rounding, of the final value) or fp32 (weight
// gradients).
struct GemmArgs {
  Tensor d;    // out
  Tensor c{};  // optional
  Tensor a;
  Tensor b;
  float alpha = 1.0F;
  float beta = 0.0F;
  bool transpose_a = false;
  bool transpose_b = false;
  // Of matrices with a plain a and a transposed b, as in linear layers: a has few rows. On the host
  // each row of d is then computed as if it were alone, so its bits do not depend on the others.
  bool few_rows = false;
};
void gemm(Stream& stream, const GemmArgs& args);

// How reports name a product, and `batch` of them: "NT 1024x384x1536", where op(a) is (m, k) and
// op(b) is (k, n); "... x8".
std::string product_shape(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t k,
                          std::int64_t n, std::int64_t batch);

// A backend that has several algorithms for a product chooses by a table, which makes another run
// compute it in exactly the same way. Called before the first product: algorithms come from the
// table in `path`, if that file is there; what it lacks is measured when it first comes. Throws
// InputError if the file is no such table or was made with another library or GPU, and where no
// backend has a choice.
struct GemmTableUse {
  std::filesystem::path path;
  bool fresh = false;  // whatever is there: all is measured
  bool must = true;    // false: what cannot be measured, as memory lacks, is chosen by the library
};
void use_gemm_table(const GemmTableUse& use);
// Writes the file, if anything was measured since, with what others have added to it meanwhile: at
// once or not at all. How many were measured. Throws Error.
std::size_t save_gemm_table(const std::filesystem::path& path);
// Of what a table is: library and GPU.
std::string gemm_environment();
// The table as it is now, in the file's format, for other processes.
std::string gemm_table_text();
// From now on products that such a text has are computed as it says, those that were planned before
// as well: between two captures. False, and nothing changes, if it is of another environment.
// Throws InputError if it is no such text.
bool adopt_gemm_table(const std::string& text);

// A backend's library calls this when it is loaded.
struct GemmBackend {
  void (*use_table)(const GemmTableUse& use) = nullptr;
  std::size_t (*save_table)(const std::filesystem::path& path) = nullptr;
  std::string (*environment)() = nullptr;
  std::string (*table_text)() = nullptr;
  bool (*adopt_table)(const std::string& text) = nullptr;
};
void register_gemm_backend(const GemmBackend& backend);

}  // namespace muo
