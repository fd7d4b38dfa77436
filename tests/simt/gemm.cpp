// In the place of cuBLASLt, so that what consists of products and own kernels can run as a whole.
// What the backend computes by a kernel of its own, it computes by that. There is one algorithm,
// which the table of algorithms gets as if it had been measured.

#include "kernels/host/gemm.h"

#include <cstring>
#include <vector>

#include "kernels/cuda/gemm_algorithms.h"
#include "kernels/cuda/gemm_problem.h"
#include "kernels/cuda/gemm_run.h"
#include "kernels/cuda/gemm_scale.h"
#include "kernels/operation.h"
#include "simt/emulator/launch.h"

namespace muo::simt {
namespace {

const cuda::GemmEnvironment kHere{.library = 1, .gpu = "the CPU"};

void gemm(NativeStream stream, const GemmArgs& args) {
  const std::size_t last = args.a.shape.rank() - 1;
  if (args.a.shape[args.transpose_a ? last - 1 : last] == 0)
    return cuda::scale_into(stream, args.d, args.beta == 0.0F ? Tensor{} : args.c, args.beta);
  cuda::GemmAlgorithms& table = cuda::gemm_algorithms();
  const std::string problem = text_of(cuda::problem_of(args));
  if (table.measuring() && !table.find(kHere, problem)) table.record(kHere, problem, {});
  stream->host.enqueue_host("gemm", {}, [args] { host::gemm_in_use()(args); });
}

const KernelRegistration<GemmArgs> registration(&gemm);

[[maybe_unused]] const bool kOffered = [] {
  cuda::offer_gemm_table([] { return kHere; });
  return true;
}();

// Matrix `batch` of a column-major library, as a row-major one of its own.
std::vector<std::byte> gathered(const void* data, const cuda::ColumnMajorMatrix& x,
                                std::int64_t batch, DType dtype) {
  const auto bytes = static_cast<std::size_t>(size_of(dtype));
  const auto* from = static_cast<const std::byte*>(data) + batch * x.stride * size_of(dtype);
  std::vector<std::byte> out(static_cast<std::size_t>(x.rows * x.columns) * bytes);
  for (std::int64_t i = 0; i < x.columns; ++i)
    std::memcpy(out.data() + static_cast<std::size_t>(i * x.rows) * bytes,
                from + i * x.leading * size_of(dtype), static_cast<std::size_t>(x.rows) * bytes);
  return out;
}

void multiply(const cuda::GemmProblem& p, const cuda::GemmOperands& operands) {
  const cuda::ColumnMajorProblem of = column_major(p);
  const auto tensor = [](std::vector<std::byte>& data, const cuda::ColumnMajorMatrix& x,
                         DType dtype) {
    return Tensor{.data = data.data(), .shape = {x.columns, x.rows}, .dtype = dtype};
  };
  for (std::int64_t i = 0; i < p.batch; ++i) {
    std::vector<std::byte> a = gathered(operands.a, of.second, i, p.in);
    std::vector<std::byte> b = gathered(operands.b, of.first, i, p.in);
    std::vector<std::byte> d = gathered(operands.c, of.result, i, p.out);
    const Tensor result = tensor(d, of.result, p.out);
    host::gemm_in_use()(
        {.d = result,
         .c = result,
         .a = tensor(a, of.second, p.in),
         .b = tensor(b, of.first, p.in),
         .alpha = operands.alpha,
         .beta = p.addend == cuda::GemmProblem::Addend::kNone ? 0.0F : operands.beta,
         .transpose_a = p.transpose_a,
         .transpose_b = p.transpose_b});
    auto* to = static_cast<std::byte*>(operands.d) + i * of.result.stride * size_of(p.out);
    const std::int64_t bytes = of.result.rows * size_of(p.out);
    for (std::int64_t j = 0; j < of.result.columns; ++j)
      std::memcpy(to + j * of.result.leading * size_of(p.out), d.data() + j * bytes,
                  static_cast<std::size_t>(bytes));
  }
}

}  // namespace
}  // namespace muo::simt

namespace muo::cuda {

void run_problem(NativeStream stream, const GemmProblem& problem, const GemmOperands& operands) {
  stream->host.enqueue_host("gemm", {}, [=] { simt::multiply(problem, operands); });
}

}  // namespace muo::cuda
