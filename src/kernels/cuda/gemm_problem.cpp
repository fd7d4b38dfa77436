#include "kernels/cuda/gemm_problem.h"

#include <algorithm>

namespace muo::cuda {

std::int64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t lowest = bits & (~bits + 1);
  return static_cast<std::int64_t>(std::min<std::uintptr_t>(lowest, 16));
}

GemmProblem problem_of(const GemmArgs& args) {
  const std::size_t row_axis = args.d.shape.rank() == 3 ? 1 : 0;
  GemmProblem p;
  p.m = args.d.shape[row_axis];
  p.n = args.d.shape[row_axis + 1];
  p.k = args.a.shape[args.transpose_a ? row_axis : row_axis + 1];
  p.batch = row_axis == 1 ? args.d.shape[0] : 1;
  p.in = args.a.dtype;
  p.out = args.d.dtype;
  p.transpose_a = args.transpose_a;
  p.transpose_b = args.transpose_b;
  if (args.c && args.beta != 0.0F)
    p.addend =
        args.c.data == args.d.data ? GemmProblem::Addend::kInPlace : GemmProblem::Addend::kSeparate;
  p.alignment.a = alignment_of(args.a.data);
  p.alignment.b = alignment_of(args.b.data);
  p.alignment.d = alignment_of(args.d.data);
  p.alignment.c =
      p.addend == GemmProblem::Addend::kSeparate ? alignment_of(args.c.data) : p.alignment.d;
  return p;
}

std::string text_of(const GemmProblem& p) {
  constexpr const char* kAddends[] = {"", " + d", " + c"};
  return concat(name_of(p.in), " into ", name_of(p.out), ", ", p.batch, " x (", p.m, " x ", p.n,
                " x ", p.k, "), a", p.transpose_a ? "^T" : "", " b", p.transpose_b ? "^T" : "",
                p.whole != 0 ? concat(" of ", p.whole) : "", kAddends[static_cast<int>(p.addend)],
                ", aligned to ", p.alignment.a, " ", p.alignment.b, " ", p.alignment.c, " ",
                p.alignment.d, ", in ", p.workspace >> 20, " MiB");
}

ColumnMajorProblem column_major(const GemmProblem& p) {
  const std::int64_t all_rows = p.whole != 0 ? p.whole : p.m;
  const std::int64_t all_columns = p.whole != 0 ? p.whole : p.n;
  // Our rows are the library's columns. `all` is the whole matrix in memory.
  struct Extents {
    std::int64_t rows, columns;
  };
  const auto matrix = [](Extents used, Extents all, bool transpose) {
    if (transpose) {
      std::swap(used.rows, used.columns);
      std::swap(all.rows, all.columns);
    }
    return ColumnMajorMatrix{.rows = used.columns,
                             .columns = used.rows,
                             .leading = all.columns,
                             .stride = all.rows * all.columns,
                             .transpose = transpose};
  };
  return {.first = matrix({p.k, p.n}, {p.k, all_columns}, p.transpose_b),
          .second = matrix({p.m, p.k}, {all_rows, p.k}, p.transpose_a),
          .result = matrix({p.m, p.n}, {all_rows, all_columns}, false)};
}

}  // namespace muo::cuda
