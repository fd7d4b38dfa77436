#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "stand_ins/world.h"

namespace muo::stand_in {

cudaError_t known(cudaGraph_t graph) {
  return world().graphs.contains(graph)
             ? usable(*graph->gpu)
             : wrong(cudaErrorInvalidValue, "a graph that does not exist");
}

namespace {

cudaError_t known(cudaGraphExec_t executable) {
  return world().executables.contains(executable)
             ? usable(*executable->gpu)
             : wrong(cudaErrorInvalidValue, "an executable graph that does not exist");
}

// Divides a graph into branches. A node continues the branch of its first predecessor whose branch
// no other node continues; if there is none it begins a branch. With Settings::in_turn every node
// with several predecessors begins a branch too, as in drivers. Returns the number of branches.
std::size_t assign_branches(CUgraphExec_st& executable) {
  const std::vector<Node>& nodes = executable.nodes;
  std::vector<bool> continued(nodes.size(), false);
  std::size_t branches = 0;
  executable.branch.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto& after = nodes[i].after;
    const auto before = std::ranges::find_if(after, [&](std::size_t n) {
      return !continued[n] && (after.size() == 1 || !world().settings.in_turn);
    });
    if (before == after.end()) {
      executable.branch[i] = branches++;
    } else {
      executable.branch[i] = executable.branch[*before];
      continued[*before] = true;
    }
  }
  return branches;
}

// A random topological order of the nodes.
std::vector<std::size_t> random_order(const std::vector<Node>& nodes) {
  std::vector<std::vector<std::size_t>> successors(nodes.size());
  std::vector<std::size_t> unmet(nodes.size());
  std::vector<std::size_t> ready;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    unmet[i] = nodes[i].after.size();
    for (const std::size_t before : nodes[i].after)
      successors[before].push_back(i);
    if (unmet[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[world().next_random() % ready.size()], ready.back());
    const std::size_t next = ready.back();
    ready.pop_back();
    order.push_back(next);
    for (const std::size_t successor : successors[next])
      if (--unmet[successor] == 0) ready.push_back(successor);
  }
  return order;
}

// As in CUDA, instantiation gives every node a new id.
void give_new_ids(CUgraphExec_st& executable) {
  World& all = world();
  executable.number = static_cast<std::uint32_t>(++all.numbers);
  const auto clone = [&](std::uint64_t original) {
    Profiler* const profiler = all.profiler;
    return profiler == nullptr ? original : profiler->node_cloned(executable.number, original);
  };
  for (Node& node : executable.nodes) {
    node.id = clone(node.id);
    if (node.loop == nullptr) continue;
    for (const Node& in_body : node.loop->body->nodes)
      executable.bodies[in_body.id] = clone(in_body.id);
  }
}

std::uint32_t begin_launch() {
  static std::atomic<std::uint32_t> launches = 0;
  const std::uint32_t correlation = ++launches;
  if (Profiler* const profiler = world().profiler) profiler->launches(correlation);
  return correlation;
}

void add_owners(const std::vector<Node>& nodes, int more) {
  for (const Node& node : nodes)
    if (node.loop != nullptr && (node.loop->owners += more) == 0)
      world().graphs.erase(node.loop->body);  // and deleted with the last node
}

// Runs the body in random topological orders, one node after another.
void run_loop(const Loop& loop) {
  const Operation* const in = running_operation();
  const std::vector<Node>& nodes = loop.body->nodes;
  for (;;) {
    std::vector<std::size_t> order;
    {
      const Lock lock;
      if (loop.condition == 0) return;
      order = random_order(nodes);
    }
    for (const std::size_t node : order)
      if (nodes[node].task)
        run_profiled(nodes[node].name, in->launch->bodies.at(nodes[node].id),
                     in->launch->correlation, nodes[node].task);
  }
}

}  // namespace
}  // namespace muo::stand_in

using namespace muo::stand_in;  // NOLINT(google-build-using-namespace): CUDA's functions are these

void CUgraph_st::add(Node node) {
  node.id = ++world().numbers;
  if (Profiler* const profiler = world().profiler) profiler->node_created(node.id);
  nodes.push_back(std::move(node));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  std::vector<Node> nodes;  // captured arguments are freed without holding the lock
  const Lock lock;
  if (!world().graphs.contains(graph)) return known(graph);
  if (graph->is_body) return wrong(cudaErrorInvalidValue, "destroying a graph that a node owns");
  world().graphs.erase(graph);
  add_owners(graph->nodes, -1);
  nodes.swap(graph->nodes);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                             unsigned /*value*/, unsigned /*flags*/) {
  const Lock lock;
  World& all = world();
  const bool is_captured =
      std::ranges::any_of(all.captures, [&](const auto& one) { return one->graph == graph; });
  if (!is_captured)
    if (const cudaError_t error = known(graph); error != cudaSuccess) return error;
  *handle = ++all.numbers;
  graph->conditions.push_back(std::make_shared<Loop>(Loop{.handle = *handle}));
  all.conditions[*handle] = graph->conditions.back();
  return cudaSuccess;
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                             const cudaGraphEdgeData* /*edges*/, std::size_t count,
                             cudaGraphNodeParams* params) {
  const Lock lock;
  if (const cudaError_t error = known(graph); error != cudaSuccess) return error;
  const auto& [handle, type, size, bodies] = params->conditional;
  const auto condition = std::ranges::find(graph->conditions, handle, &Loop::handle);
  if (params->type != cudaGraphNodeTypeConditional || type != cudaGraphCondTypeWhile || size != 1 ||
      condition == graph->conditions.end() || (*condition)->body != nullptr)
    return wrong(cudaErrorInvalidValue,
                 "a node other than a WHILE node with a condition of its own");
  const LoopPtr loop(condition->get(), [owner = *condition](Loop* of) {
    delete of->body;
    of->body = nullptr;
  });
  loop->body = new CUgraph_st{.gpu = graph->gpu, .is_body = true};
  loop->owners = 1;
  world().graphs.insert(loop->body);
  // NVIDIA's array lives as long as the node.
  params->conditional.phGraph_out = &loop->body;
  Node made{.name = "a loop",
            .task = [loop] { run_loop(*loop); },
            .after = {},
            .memory = {},
            .loop = loop};
  for (std::size_t i = 0; i < count; ++i)
    made.after.push_back(reinterpret_cast<std::size_t>(after[i]) - 1);
  graph->add(std::move(made));
  *node = reinterpret_cast<cudaGraphNode_t>(graph->nodes.size());
  return cudaSuccess;
}

void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value) {
  const Lock lock;
  const auto found = world().conditions.find(handle);
  const LoopPtr loop = found == world().conditions.end() ? nullptr : found->second.lock();
  if (loop == nullptr) return misuse("a kernel sets a condition that no graph has");
  loop->condition = value;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  Lock lock;
  if (const cudaError_t error = known(graph); error != cudaSuccess) return error;
  if (const cudaError_t error = unsafe("cudaGraphInstantiate"); error != cudaSuccess) return error;
  for (const LoopPtr& loop : graph->conditions)
    if (loop->body == nullptr)
      return wrong(cudaErrorInvalidValue, "a condition that no node of the graph has");
  wait_for_all(lock, *graph->gpu, "cudaGraphInstantiate");
  *executable = new CUgraphExec_st{.nodes = graph->nodes, .gpu = graph->gpu};
  give_new_ids(**executable);
  add_owners((*executable)->nodes, 1);
  for (Node& node : (*executable)->nodes)
    if (node.loop != nullptr)
      for (const Node& in_body : node.loop->body->nodes)
        node.memory.insert(node.memory.end(), in_body.memory.begin(), in_body.memory.end());
  const std::size_t branches = assign_branches(**executable);
  for (std::size_t i = 1; i < branches; ++i)
    (*executable)->queues.push_back(&queue_for_one_more(*graph->gpu));
  world().executables.insert(*executable);
  return cudaSuccess;
}

// A running graph is not interrupted.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  std::vector<Node> nodes;
  const Lock lock;
  if (!world().executables.contains(executable)) return known(executable);
  world().executables.erase(executable);
  for (Queue* queue : executable->queues)
    --queue->users;
  add_owners(executable->nodes, -1);
  nodes.swap(executable->nodes);
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  Lock lock;
  if (const cudaError_t error = known(executable); error != cudaSuccess) return error;
  return enqueue(lock, stream, "an upload", {}, {});
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::uint32_t correlation = begin_launch();
  Lock lock;
  World& all = world();
  if (const cudaError_t error = known(executable); error != cudaSuccess) return error;
  Gpu& gpu = *executable->gpu;
  if (all.streams.contains(stream) && stream->capture != nullptr) {
    stream->capture->invalid = true;
    return wrong(cudaErrorStreamCaptureUnsupported, "a graph launched into a capture");
  }
  if (!all.streams.contains(stream) || stream->gpu != &gpu)
    return wrong(cudaErrorInvalidResourceHandle, "a graph launched on a stream of another GPU");
  wait_for_turn(lock, gpu);
  for (const Node& node : executable->nodes)
    for (const std::uint64_t number : node.memory)
      if (!all.alive.contains(number)) {
        fault(gpu, node.name + " of a graph uses memory that was freed");
        return gpu.error;
      }
  std::vector<OperationPtr> before;  // the stream's last operation, and the previous launch
  for (const OperationPtr& one : {stream->last, executable->last})
    if (one != nullptr) before.push_back(one);
  const std::vector<Node>& nodes = executable->nodes;
  const auto launch = std::make_shared<Launch>(Launch{correlation, executable->bodies});
  std::vector<OperationPtr> running(nodes.size());
  std::vector<bool> is_last(nodes.size(), true);
  for (const std::size_t i : random_order(nodes)) {
    std::vector<OperationPtr> after = nodes[i].after.empty() ? before : std::vector<OperationPtr>{};
    for (const std::size_t n : nodes[i].after) {
      after.push_back(running[n]);
      is_last[n] = false;
    }
    const std::size_t branch = executable->branch[i];
    Queue& queue = branch == 0 ? *stream->queue : *executable->queues[branch - 1];
    running[i] = submit(gpu, queue,
                        {.name = nodes[i].name,
                         .task = nodes[i].task,
                         .after = std::move(after),
                         .memory = nodes[i].memory,
                         .launch = launch,
                         .node = nodes[i].loop == nullptr ? nodes[i].id : 0});
  }
  std::vector<OperationPtr> ends = before;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (is_last[i]) ends.push_back(running[i]);
  stream->last = executable->last =
      submit(gpu, *stream->queue, {.name = "the end of a graph", .after = std::move(ends)});
  if (all.settings.blocking) wait_for(lock, stream->last);
  return usable(gpu);
}
