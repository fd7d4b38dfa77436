#include "kernels/gemm.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_problem.h"
#include "kernels/operation.h"
#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/relaxed_capture.h"
#include "runtime/cuda/stream_context.h"

// All products are computed by cuBLASLt.
namespace muo::cuda {
namespace {

GemmEnvironment environment_of(int device) {
  cudaDeviceProp properties{};
  MUO_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return {
      .library = static_cast<std::int64_t>(cublasLtGetVersion()),
      .gpu = concat(properties.name, " (", properties.multiProcessorCount, " multiprocessors)")};
}

cublasLtHandle_t handle_of(StreamContext& context) {
  if (!context.blas) {
    cublasLtHandle_t handle = nullptr;
    MUO_BLAS_CHECK(cublasLtCreate(&handle));
    context.blas = std::shared_ptr<void>(
        handle, [](void* h) { cublasLtDestroy(static_cast<cublasLtHandle_t>(h)); });
  }
  return static_cast<cublasLtHandle_t>(context.blas.get());
}

// Returns the algorithm in the table. If there is none and measuring is on, waits until the work
// of `stream` is done and measures the fastest algorithm; if measuring is off, returns the
// library's first proposal.
cublasLtMatmulAlgo_t choose(cublasLtHandle_t handle, const GemmPlan& plan,
                            const GemmProblem& problem, const GemmEnvironment& here,
                            NativeStream stream) {
  GemmAlgorithms& table = gemm_algorithms();
  const std::string text = text_of(problem);
  if (const auto recorded = table.find(here, text)) {
    try {
      return restored(handle, plan, problem, *recorded);
    } catch (const InputError&) {  // a damaged entry: measured again unless required
      if (table.must_measure()) throw;
    }
  }
  const auto proposals = candidates(handle, plan, problem);
  if (!table.measuring()) return proposals.front();
  MUO_CHECK(!is_capturing(stream), "gemm of ", text,
            " cannot be measured: its first call is during a capture of its stream");
  MUO_CUDA_CHECK(cudaStreamSynchronize(stream), "before measuring gemm of ", text);
  GemmMeasurement best{};
  try {
    best = fastest(handle, plan, problem, proposals);
  } catch (const Error&) {  // the operands do not fit beside the run's tensors
    if (table.must_measure()) throw;
    static_cast<void>(cudaGetLastError());
    return proposals.front();
  }
  GemmAlgorithm entry = described(best.algorithm);
  entry.microseconds = best.microseconds;
  table.record(here, text, entry);
  return best.algorithm;
}

// The plans of all devices, by problem. Measurements of one device are used by the others.
class Plans {
 public:
  GemmPlan get(cublasLtHandle_t handle, const GemmProblem& problem, int device,
               NativeStream stream) {
    // Held while a plan is made, so that devices measure one after the other, and each
    // problem only once.
    const std::lock_guard lock(mutex_);
    if (const int now = gemm_algorithms().adoptions(); std::exchange(adoptions_, now) != now)
      plans_.clear();
    const auto key = std::pair(device, problem);
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
    const auto [here, added] = environments_.try_emplace(device);
    if (added) here->second = environment_of(device);
    GemmPlan plan = describe(problem);
    plan.algorithm = choose(handle, plan, problem, here->second, stream);
    plans_.emplace(key, plan);
    return plan;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, GemmProblem>, GemmPlan> plans_;
  std::map<int, GemmEnvironment> environments_;
  int adoptions_ = 0;
};

void gemm(NativeStream stream, const GemmArgs& args) {
  if (args.d.numel() == 0) return;
  const GemmProblem problem = problem_of(args);
  const bool adds = problem.addend != GemmProblem::Addend::kNone;
  if (problem.k == 0) return scale_into(stream, args.d, adds ? args.c : Tensor{}, args.beta);
  run_problem(stream, problem,
              {.a = args.a.data,
               .b = args.b.data,
               .c = adds ? args.c.data : args.d.data,
               .d = args.d.data,
               .alpha = args.alpha,
               .beta = adds ? args.beta : 0.0F});
}

const KernelRegistration kRegistration(&gemm);

[[maybe_unused]] const bool kOffered = [] {
  offer_gemm_table([] { return environment_of(0); });
  return true;
}();

}  // namespace

void run_problem(NativeStream stream, GemmProblem problem, const GemmOperands& operands) {
  static Plans plans;
  StreamContext& context = context_of(stream);
  const RelaxedCapture relaxed;  // the first product of a kind loads its kernel
  const cublasLtHandle_t handle = handle_of(context);
  problem.workspace = context.gemm_workspace_bytes;
  run_plan(handle, plans.get(handle, problem, context.device, stream), problem, operands,
           context.gemm_workspace, stream);
}

}  // namespace muo::cuda
