#include "runtime/cuda/recorded_graph.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "runtime/cuda/cupti.h"

namespace muo::cuda {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr cupti::Activity kActivities[] = {cupti::Activity::kKernel, cupti::Activity::kCopy,
                                           cupti::Activity::kFill};

struct Launch {
  RecordedGraph* graph = nullptr;
  std::int64_t index = 0;
};
thread_local NodeIds* named = nullptr;
thread_local Launch launching;

// "kernel<float>" for "void muo::cuda::(anonymous namespace)::kernel<float>(Args)", as a step has
// thousands of kernels.
std::string short_name(std::string name) {
  constexpr std::size_t kMaxLength = 100;
  for (const std::string_view part : {"void ", "muo::", "cuda::", "(anonymous namespace)::"})
    for (std::size_t at = name.find(part); at != std::string::npos; at = name.find(part))
      name.erase(at, part.size());
  int depth = 0;  // of template arguments
  const auto parameters = std::ranges::find_if(name, [&](char c) {
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
    return c == '(' && depth == 0;
  });
  name.erase(parameters, name.end());
  if (name.size() > kMaxLength) name = name.substr(0, kMaxLength) + "...";
  return name;
}

}  // namespace

// The process's use of CUPTI.
class NodeRecorder {
 public:
  // Never destroyed: CUPTI may call it until the process ends.
  static NodeRecorder& get() {
    static NodeRecorder& recorder = *new NodeRecorder;
    return recorder;
  }

  std::string begin() {
    const std::lock_guard switching(switching_);
    if (!missing_) missing_ = subscribe();
    return *missing_;
  }

  std::unique_ptr<RecordedGraph> make(NodeIds ids, cudaGraphExec_t executable) {
    {
      const std::lock_guard switching(switching_);
      if (!missing_ || !missing_->empty()) return nullptr;
    }
    std::unique_ptr<RecordedGraph> graph(new RecordedGraph);
    graph->nodes_ = std::move(ids.executable);
    // Without a callback for a node's clone, its id is this one.
    std::uint32_t id = 0;
    if (cupti_.executable_id(executable, &id) == cupti::kSuccess)
      for (const auto& [captured, node] : ids.captured)
        graph->nodes_.emplace(std::uint64_t{id} << 32U | (captured & 0xffffffffU), node);
    const std::lock_guard lock(mutex_);
    for (const auto& [node_id, node] : graph->nodes_)
      owners_[node_id] = graph.get();
    return graph;
  }
  void forget(const RecordedGraph& graph) {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, node] : graph.nodes_)
      owners_.erase(id);
    std::erase_if(launches_, [&](const auto& entry) { return entry.second.graph == &graph; });
  }

  bool record(RecordedGraph& graph, bool on) {
    const std::lock_guard switching(switching_);
    if (graph.is_recorded_ == on) return true;
    if (on && recorded_ == 0 && enable() != cupti::kSuccess) return false;
    recorded_ += on ? 1 : -1;
    if (!on && recorded_ == 0) disable();
    const std::lock_guard lock(mutex_);
    graph.is_recorded_ = on;
    graph.arrived_.clear();
    if (recorded_ == 0) launches_.clear();
    return true;
  }

  std::vector<NodeRun> take(RecordedGraph& graph, bool all) {
    if (all) cupti_.flush(cupti::kForcedFlush);  // calls completed(), here or on another thread
    const std::lock_guard lock(mutex_);
    return std::exchange(graph.arrived_, {});
  }
  std::int64_t lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  std::string subscribe() {
    if (std::string missing = cupti::load(cupti_); !missing.empty()) return missing;
    cupti::Result result = cupti_.subscribe(&subscriber_, called, this);
    if (result == cupti::kMultipleSubscribers) return "another profiler uses CUPTI: run without it";
    for (const std::uint32_t id : {cupti::kNodeCreated, cupti::kNodeCloned})
      if (result == cupti::kSuccess)
        result = cupti_.enable_callback(1, subscriber_, cupti::Domain::kResource, id);
    if (result == cupti::kSuccess) result = cupti_.register_callbacks(requested, completed);
    if (result == cupti::kSuccess) result = enable();  // fails without permission
    if (result != cupti::kSuccess) return text_of(result);
    disable();
    return "";
  }

  std::string text_of(cupti::Result result) const {
    const char* text = nullptr;
    cupti_.result_text(result, &text);
    return concat("CUPTI: ", text == nullptr ? "error" : text, " (", result, ")");
  }

  // CUPTI may deliver records meanwhile, so these do not hold `mutex_`.
  cupti::Result enable() {
    std::uint64_t now = 0;
    cupti::Result result = cupti_.timestamp(&now);
    const double steady = steady_seconds();
    {
      const std::lock_guard lock(mutex_);
      began_ = now;
      began_steady_ = steady;
    }
    if (result == cupti::kSuccess)
      result =
          cupti_.enable_callback(1, subscriber_, cupti::Domain::kRuntimeApi, cupti::kGraphLaunch);
    for (const cupti::Activity kind : kActivities)
      if (result == cupti::kSuccess) result = cupti_.enable(kind);
    if (result != cupti::kSuccess) disable();
    return result;
  }
  void disable() {
    for (const cupti::Activity kind : kActivities)
      cupti_.disable(kind);
    cupti_.enable_callback(0, subscriber_, cupti::Domain::kRuntimeApi, cupti::kGraphLaunch);
  }

  // CUPTI's callbacks. They make no call of CUDA.
  static void called(void* self, cupti::Domain domain, std::uint32_t id, const void* data) {
    auto& recorder = *static_cast<NodeRecorder*>(self);
    if (domain == cupti::Domain::kRuntimeApi)
      return recorder.launches(*static_cast<const cupti::CallbackData*>(data));
    if (named == nullptr) return;
    const auto& resource = *static_cast<const cupti::ResourceData*>(data);
    recorder.has_node(id, *static_cast<const cupti::GraphData*>(resource.descriptor));
  }
  void has_node(std::uint32_t callback, const cupti::GraphData& graph) const {
    std::uint64_t id = 0, original = 0;
    if (cupti_.node_id(graph.node, &id) != cupti::kSuccess) return;
    if (callback == cupti::kNodeCreated) {
      named->captured.emplace(id, named->node);
    } else if (cupti_.node_id(graph.original_node, &original) == cupti::kSuccess) {
      for (const NodeIds::Map* known : {&named->captured, &named->executable})
        if (const auto found = known->find(original); found != known->end()) {
          named->executable.emplace(id, found->second);
          return;
        }
    }
  }
  void launches(const cupti::CallbackData& call) {
    if (call.site != cupti::kApiEnter || launching.graph == nullptr) return;
    const std::lock_guard lock(mutex_);
    if (launching.graph->is_recorded_) launches_[call.correlation] = launching;
  }

  static void requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
    *size = *buffer == nullptr ? 0 : kBufferBytes;
    *max_records = 0;
  }
  static void completed(CUctx_st* context, std::uint32_t stream, std::uint8_t* buffer,
                        std::size_t /*size*/, std::size_t valid) {
    NodeRecorder& recorder = get();
    {
      const std::lock_guard lock(recorder.mutex_);
      cupti::Record* record = nullptr;
      while (recorder.cupti_.next_record(buffer, valid, &record) == cupti::kSuccess)
        recorder.add(*record);
      std::size_t dropped = 0;
      if (recorder.cupti_.dropped_records(context, stream, &dropped) == cupti::kSuccess)
        recorder.lost_ += static_cast<std::int64_t>(dropped);
    }
    std::free(buffer);
  }

  void add(const cupti::Record& record) {
    switch (record.kind) {
      case cupti::Activity::kKernel: {
        const auto& kernel = reinterpret_cast<const cupti::KernelRecord&>(record);
        return add(kernel, kernel.name);
      }
      case cupti::Activity::kCopy:
        return add(reinterpret_cast<const cupti::TransferRecord&>(record), "copy");
      case cupti::Activity::kFill:
        return add(reinterpret_cast<const cupti::TransferRecord&>(record), "fill");
    }
  }
  template <class R>
  void add(const R& record, const char* name) {
    if (record.graph_node == 0) return;
    const auto launch = launches_.find(record.correlation);
    const auto owner = owners_.find(record.graph_node);
    const bool is_launched = launch != launches_.end(), is_known = owner != owners_.end();
    if (!is_launched && !(is_known && owner->second->is_recorded_)) return;  // of another graph
    if (!is_launched || !is_known || owner->second != launch->second.graph || record.end == 0) {
      ++lost_;
      return;
    }
    RecordedGraph& graph = *owner->second;
    graph.arrived_.push_back({.node = graph.nodes_.at(record.graph_node),
                              .launch = launch->second.index,
                              .begin = seconds_of(record.start),
                              .end = seconds_of(record.end),
                              .part = record.graph_node,
                              .kernel = kernel_name(name)});
  }
  [[nodiscard]] double seconds_of(std::uint64_t time) const {
    return began_steady_ + 1e-9 * static_cast<double>(static_cast<std::int64_t>(time - began_));
  }
  const char* kernel_name(const char* mangled) {
    if (mangled == nullptr) mangled = "";
    auto known = names_.find(std::string_view(mangled));
    if (known == names_.end()) {
      int status = 0;
      char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
      known = names_.emplace(mangled, short_name(status == 0 ? text : mangled)).first;
      std::free(text);
    }
    return known->second.c_str();
  }

  std::mutex switching_;  // held while recording is switched on or off; locked before `mutex_`
  std::mutex mutex_;
  std::optional<std::string> missing_;  // under `switching_`; empty: recording has not begun
  cupti::Functions cupti_;
  cupti::Subscriber subscriber_ = nullptr;
  int recorded_ = 0;         // graphs
  std::uint64_t began_ = 0;  // CUPTI's time at which recording began, in nanoseconds
  double began_steady_ = 0;  // the same of the steady clock, in seconds
  std::unordered_map<std::uint64_t, RecordedGraph*> owners_;  // by id of a node
  std::unordered_map<std::uint32_t, Launch> launches_;        // by CUPTI's correlation id
  std::map<std::string, std::string, std::less<>> names_;     // of kernels, by mangled name
  std::int64_t lost_ = 0;
};

std::string record_nodes() { return NodeRecorder::get().begin(); }

NamedNodes::NamedNodes(NodeIds& ids) : outer_(std::exchange(named, &ids)) {}
NamedNodes::~NamedNodes() { named = outer_; }
void name_next_nodes(std::uint32_t node) {
  if (named != nullptr) named->node = node;
}

std::unique_ptr<RecordedGraph> RecordedGraph::make(NodeIds ids, cudaGraphExec_t executable) {
  return NodeRecorder::get().make(std::move(ids), executable);
}
RecordedGraph::~RecordedGraph() {
  record(false);
  NodeRecorder::get().forget(*this);
}
bool RecordedGraph::record(bool on) { return NodeRecorder::get().record(*this, on); }
std::vector<NodeRun> RecordedGraph::take(bool all) { return NodeRecorder::get().take(*this, all); }
std::int64_t RecordedGraph::lost() { return NodeRecorder::get().lost(); }

RecordedGraph::Launching::Launching(RecordedGraph* graph, std::int64_t launch) {
  launching = {graph, launch};
}
RecordedGraph::Launching::~Launching() { launching = {}; }

}  // namespace muo::cuda
