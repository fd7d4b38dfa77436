#include "kernels/gemm.h"

#include <limits>

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Cost cost(const GemmArgs& args) {
  const std::size_t rank = args.d.shape.rank();
  const std::int64_t m = args.d.shape[rank - 2];
  const std::int64_t n = args.d.shape[rank - 1];
  const std::int64_t k = args.a.shape[args.transpose_a ? rank - 2 : rank - 1];
  return {.shape = product_shape(args.transpose_a, args.transpose_b, m, k, n,
                                 rank == 3 ? args.d.shape[0] : 1),
          .flops = 2.0 * static_cast<double>(args.d.numel()) * static_cast<double>(k)};
}

Operation<GemmArgs> operation("gemm", &cost);
GemmBackend device;

Shape matrix_shape(const Tensor& like, std::int64_t rows, std::int64_t columns) {
  return like.shape.rank() == 3 ? Shape{like.shape[0], rows, columns} : Shape{rows, columns};
}

}  // namespace

std::string product_shape(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t k,
                          std::int64_t n, std::int64_t batch) {
  return concat(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', ' ', m, 'x', k, 'x', n,
                batch == 1 ? std::string{} : concat(" x", batch));
}

void gemm(Stream& stream, const GemmArgs& args) {
  ArgumentCheck check("gemm");
  check.fp32_or_bf16("d", args.d);
  const std::size_t rank = args.d.shape.rank();
  check.that(rank == 2 || rank == 3, "d is " + args.d.shape.text() + ", expected 2-D or 3-D");
  check.rank("a", args.a, rank, "of d's rank", args.a.dtype);
  const std::int64_t m = args.d.shape[rank - 2];
  const std::int64_t n = args.d.shape[rank - 1];
  const std::int64_t k = args.a.shape[args.transpose_a ? rank - 2 : rank - 1];
  const Shape a = args.transpose_a ? matrix_shape(args.d, k, m) : matrix_shape(args.d, m, k);
  if (args.d.dtype == DType::kBF16)
    check.tensor("a", args.a, a, DType::kBF16);
  else
    check.fp32_or_bf16("a", args.a, a);
  check.tensor("b", args.b,
               args.transpose_b ? matrix_shape(args.d, n, k) : matrix_shape(args.d, k, n),
               args.a.dtype);
  check.that(!args.few_rows || (rank == 2 && !args.transpose_a && args.transpose_b),
             "few_rows needs 2-D tensors, a plain a and a transposed b");
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();  // limit of the BLAS interface
  check.that(m <= kMax && n <= kMax && k <= kMax, "an extent is above 2^31 - 1");
  check.no_overlap({{"d", args.d}}, {{"a", args.a}, {"b", args.b}});
  if (args.c) {
    check.tensor("c", args.c, args.d.shape, args.d.dtype);
    check.same_or_no_overlap("d", args.d, "c", args.c);
  }
  operation.submit(stream, args, {.writes = {args.d}, .reads = {args.c, args.a, args.b}});
}

void use_gemm_table(const GemmTableUse& use) {
  if (device.use_table == nullptr)
    throw InputError(
        "tables of GEMM algorithms are only for GPUs: the host has a single algorithm");
  device.use_table(use);
}

std::size_t save_gemm_table(const std::filesystem::path& path) { return device.save_table(path); }

std::string gemm_environment() { return device.environment == nullptr ? "" : device.environment(); }

std::string gemm_table_text() { return device.table_text(); }

bool adopt_gemm_table(const std::string& text) { return device.adopt_table(text); }

void register_gemm_backend(const GemmBackend& backend) { device = backend; }

}  // namespace muo
