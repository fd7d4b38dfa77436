#ifdef MUO_CUDNN

// The only translation unit that includes cuDNN's frontend, which takes half a minute to compile.
// cuDNN itself is loaded at run time, so that the plug-in starts without it.
#  define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#  define CUDNN_FRONTEND_SKIP_JSON_LIB
#  include "kernels/cuda/cudnn_attention.h"

#  include <dlfcn.h>

#  include <algorithm>
#  include <cstdlib>
#  include <exception>
#  include <map>
#  include <memory>
#  include <mutex>
#  include <tuple>
#  include <unordered_map>
#  include <utility>

#  include <cuda_runtime_api.h>
#  include <cudnn_frontend.h>

#  include "base/check.h"
#  include "runtime/cuda/compute_capability.h"
#  include "runtime/cuda/cuda_check.h"
#  include "runtime/cuda/relaxed_capture.h"
#  include "runtime/cuda/stream_context.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend looks up cuDNN's functions in it
}  // namespace cudnn_frontend

namespace muo::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;

// Set when the plug-in is loaded, before there are threads. By default, the frontend uses the
// oldest of several CUDA runtimes on the library path.
const int kRuntimeChosen =
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME",  // NOLINT(concurrency-mt-unsafe)
           concat("libcudart.so.", CUDART_VERSION / 1000).c_str(), 0);

// Identifiers of a plan's tensors.
enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// cuDNN's order of dimensions is (b, heads, t, h), with arbitrary strides; ours is
// (b, t, heads, h).
Tensor_attributes described(Uid uid, const AttentionProblem& p, std::int64_t heads) {
  return Tensor_attributes()
      .set_uid(uid)
      .set_dim({p.b, heads, p.t, p.h})
      .set_stride({p.t * heads * p.h, p.h, heads * p.h, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}
// The output of generate_stats, with the convention of kernels/attention.h. Before version 9.26,
// backward passes of cuDNN require it to be packed.
Tensor_attributes described_lse(const AttentionProblem& p) {
  return Tensor_attributes()
      .set_uid(kLse)
      .set_dim({p.b, p.heads, p.t, 1})
      .set_stride({p.heads * p.t, p.t, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}
void make_output(const std::shared_ptr<Tensor_attributes>& tensor, const Tensor_attributes& like) {
  tensor->set_output(true)
      .set_uid(like.get_uid())
      .set_dim(like.get_dim())
      .set_stride(like.get_stride())
      .set_data_type(like.get_data_type());
}

// Key j is visible to query i iff 0 <= i - j <= window. The right bound 0 hides j > i. The left
// bound L keeps keys with j + L > i (sliding_window_mask in the frontend's
// utils/attn_score_modifiers.h), i.e. i - j < L. L thus includes the query's own key: L = window +
// 1. With as many queries as keys, the alignment of the diagonal makes no difference.
template <class Attributes>
Attributes masked(const AttentionProblem& p) {
  Attributes out;
  out.set_attn_scale(p.scale)
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (p.window < p.t - 1) out.set_diagonal_band_left_bound(static_cast<int>(p.window + 1));
  return out;
}

struct Variant {
  AttentionDirection direction;
  bool deterministic;
};

// Builds the graph for GPUs of this compute capability (90 for 9.0).
std::shared_ptr<Graph> make_graph(const AttentionProblem& p, const Variant& variant,
                                  int capability) {
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  graph->set_sm_version(capability);  // first, because nodes copy it when they are added
  const auto q = graph->tensor(described(kQ, p, p.heads).set_name("q"));
  const auto k = graph->tensor(described(kK, p, p.kv_heads).set_name("k"));
  const auto v = graph->tensor(described(kV, p, p.kv_heads).set_name("v"));
  if (variant.direction == AttentionDirection::kForward) {
    auto attributes = masked<fe::graph::SDPA_attributes>(p);
    attributes.set_name("attention").set_generate_stats(true);
    const auto [out, lse] = graph->sdpa(q, k, v, attributes);
    make_output(out, described(kOut, p, p.heads));
    make_output(lse, described_lse(p));
  } else {
    auto attributes = masked<fe::graph::SDPA_backward_attributes>(p);
    attributes.set_name("attention_backward").set_deterministic_algorithm(variant.deterministic);
    const auto out = graph->tensor(described(kOut, p, p.heads).set_name("out"));
    const auto dout = graph->tensor(described(kDout, p, p.heads).set_name("dout"));
    const auto lse = graph->tensor(described_lse(p).set_name("lse"));
    const auto [dq, dk, dv] = graph->sdpa_backward(q, k, v, out, dout, lse, attributes);
    make_output(dq, described(kDq, p, p.heads));
    make_output(dk, described(kDk, p, p.kv_heads));
    make_output(dv, described(kDv, p, p.kv_heads));
  }
  return graph;
}

// Throws Error with the message of the frontend or of cuDNN.
void require(fe::error_t status) {
  if (status.is_bad()) throw Error(status.get_message());
}
void require(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error(concat(what, ": ", fe::detail::get_error_string(status)));
}

cudnnHandle_t new_handle() {
  cudnnHandle_t handle = nullptr;
  require(fe::detail::create_handle(&handle), "cudnnCreate");
  return handle;
}

// A graph that is ready to run, or the reason why there is none.
struct Plan {
  std::shared_ptr<Graph> graph;
  std::int64_t workspace = 0;
  std::string why_not;
};

// `build` makes a graph's execution plan: the first one proposed by the heuristic that works. It
// depends only on the library, the GPU and the problem.
template <class Build>
Plan make_plan(const AttentionProblem& p, const Variant& variant, const Build& build) {
  Plan plan;
  try {
    if (!cudnn_missing().empty()) throw Error(cudnn_missing());
    plan.graph = build();
    require(plan.graph->get_workspace_size(plan.workspace));
  } catch (const std::exception& e) {
    plan.graph.reset();
    plan.why_not = concat("cuDNN's attention",
                          variant.direction == AttentionDirection::kBackward ? " gradient" : "",
                          " of b ", p.b, ", t ", p.t, ", ", p.heads, " heads on ", p.kv_heads,
                          " of ", p.h, ", window ", p.window, ": ", e.what());
    std::ranges::replace(plan.why_not, '\n', ' ');
  }
  return plan;
}

Plan make_plan_here(const AttentionProblem& p, const Variant& variant, int device) {
  return make_plan(p, variant, [&] {
    const RelaxedCapture relaxed;
    const std::unique_ptr<cudnnContext, decltype(&fe::detail::destroy_handle)> handle(
        new_handle(), &fe::detail::destroy_handle);
    auto graph = make_graph(p, variant, compute_capability(device));
    require(graph->build(handle.get(), {fe::HeurMode_t::A}));
    return graph;
  });
}

// The plans of all devices. Each plan is made once; different devices make theirs concurrently.
const Plan& plan_of(const AttentionProblem& p, const Variant& variant, int device) {
  struct Entry {
    std::once_flag once;
    Plan plan;
  };
  static std::mutex mutex;
  static auto& entries = *new std::map<std::tuple<int, AttentionProblem, AttentionDirection, bool>,
                                       Entry>;  // never destroyed: the driver may be gone by then
  const bool deterministic =
      variant.deterministic || variant.direction == AttentionDirection::kForward;
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex);
    entry = &entries[{device, p, variant.direction, deterministic}];
  }
  std::call_once(entry->once, [&] { entry->plan = make_plan_here(p, variant, device); });
  return entry->plan;
}

const Plan& usable_plan(const AttentionProblem& p, const Variant& variant, int device) {
  const Plan& plan = plan_of(p, variant, device);
  if (!plan.graph) throw Error(plan.why_not);
  return plan;
}

cudnnHandle_t handle_of(StreamContext& context, NativeStream stream) {
  if (!context.dnn) {
    context.dnn = std::shared_ptr<void>(new_handle(), [](void* handle) {
      static_cast<void>(fe::detail::destroy_handle(static_cast<cudnnHandle_t>(handle)));
    });
    require(fe::detail::set_stream(static_cast<cudnnHandle_t>(context.dnn.get()), stream),
            "cudnnSetStream");
  }
  return static_cast<cudnnHandle_t>(context.dnn.get());
}

using Pointers = std::unordered_map<std::int64_t, void*>;

template <class Args>
void run(NativeStream stream, const Args& args, const Variant& variant, Pointers pointers) {
  MUO_CHECK(args.q.dtype == DType::kBF16, "cuDNN attention needs bf16, not ",
            name_of(args.q.dtype));
  const RelaxedCapture relaxed;  // the first use of a plan may load or allocate
  StreamContext& context = context_of(stream);
  const Plan& plan = usable_plan(problem_of(attention_size_of(args)), variant, context.device);
  MUO_CHECK(args.workspace.bytes() >= plan.workspace, "cuDNN attention: workspace of ",
            args.workspace.bytes(), " bytes, needs ", plan.workspace);
  fe::error_t status =
      plan.graph->execute(handle_of(context, stream), pointers, args.workspace.data);
  MUO_CHECK(status.is_good(), "cuDNN attention: ", status.get_message());
}

}  // namespace

const std::string& cudnn_missing() {
  static const std::string missing = [] {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    return fe::cudnn_dlhandle == nullptr
               ? concat("cuDNN 9 does not load: ", dlerror())  // NOLINT(concurrency-mt-unsafe)
               : std::string();
  }();
  return missing;
}

LibraryAttention cudnn_attention_support(const AttentionProblem& problem,
                                         AttentionDirection direction, bool deterministic) {
  if (!cudnn_missing().empty()) return {.why_not = cudnn_missing()};
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess)
    return {.why_not = concat("cuDNN cannot use a GPU: ", cudaGetErrorString(error))};
  const Plan& plan = plan_of(problem, {direction, deterministic}, device);
  return {.why_not = plan.why_not, .workspace = plan.workspace};
}

void cudnn_attention(NativeStream stream, const AttentionArgs& args) {
  run(stream, args, {AttentionDirection::kForward, true},
      {{kQ, args.q.data},
       {kK, args.k.data},
       {kV, args.v.data},
       {kOut, args.out.data},
       {kLse, args.lse.data}});
}

void cudnn_attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  run(stream, args, {AttentionDirection::kBackward, args.method.deterministic},
      {{kQ, args.q.data},
       {kK, args.k.data},
       {kV, args.v.data},
       {kOut, args.out.data},
       {kLse, args.lse.data},
       {kDout, args.dout.data},
       {kDq, args.dq.data},
       {kDk, args.dk.data},
       {kDv, args.dv.data}});
}

LibraryAttention cudnn_attention_support_on(const AttentionProblem& problem,
                                            AttentionDirection direction, bool deterministic,
                                            const DescribedGpu& gpu) {
  const Variant variant{direction, deterministic};
  const Plan plan = make_plan(problem, variant, [&] {
    const auto device = std::make_shared<fe::DeviceProperties>();
    require(device->deserialize({gpu.properties.begin(), gpu.properties.end()}));
    auto graph = make_graph(problem, variant, gpu.capability);
    graph->set_device_properties(device);
    require(graph->build({fe::HeurMode_t::A}));
    return graph;
  });
  return {.why_not = plan.why_not, .workspace = plan.workspace};
}

}  // namespace muo::cuda

#endif
