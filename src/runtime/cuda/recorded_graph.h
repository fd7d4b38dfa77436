#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <cuda_runtime_api.h>

#include "runtime/stream.h"

// Times of the nodes of replays, measured by CUPTI. It names an executed kernel by the id of its
// node in the executable graph, so the ids of nodes are kept from the capture on.

namespace muo::cuda {

// Begins to keep the ids of nodes, for the life of the process: only graphs captured afterwards can
// be recorded. CUPTI takes device memory. Returns an empty string, or one line that says why that
// is not possible. Thread-safe.
std::string record_nodes();

// Ids of the nodes of a graph under construction, with their nodes in the trace.
struct NodeIds {
  using Map = std::unordered_map<std::uint64_t, std::uint32_t>;
  std::uint32_t node = 0;  // of the trace: the one to which new nodes belong
  Map captured, executable;
};

// While it exists, nodes that this thread captures or instantiates are added to `ids`.
class NamedNodes {
 public:
  explicit NamedNodes(NodeIds& ids);
  ~NamedNodes();
  NamedNodes(const NamedNodes&) = delete;
  NamedNodes& operator=(const NamedNodes&) = delete;

 private:
  NodeIds* const outer_;
};
// Nodes that this thread captures from now on belong to `node`.
void name_next_nodes(std::uint32_t node);

// The recorded launches of a graph. Used by the thread that launches it.
class RecordedGraph {
 public:
  // Null if record_nodes() was not called, or failed.
  static std::unique_ptr<RecordedGraph> make(NodeIds ids, cudaGraphExec_t executable);
  ~RecordedGraph();
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;

  // Starts or stops recording. Returns false if CUPTI refuses.
  bool record(bool on);
  // Removes and returns the executions whose times have arrived; `all`: of all launches, if the
  // device is idle.
  std::vector<NodeRun> take(bool all);
  // Executions that are missing, of all graphs of the process.
  [[nodiscard]] static std::int64_t lost();

  // The thread launches the graph, if it is not null, while this exists.
  class Launching {
   public:
    Launching(RecordedGraph* graph, std::int64_t launch);
    ~Launching();
    Launching(const Launching&) = delete;
    Launching& operator=(const Launching&) = delete;
  };

 private:
  friend class NodeRecorder;
  RecordedGraph() = default;

  NodeIds::Map nodes_;  // by id
  bool is_recorded_ = false;
  std::vector<NodeRun> arrived_;  // under the recorder's lock
};

}  // namespace muo::cuda
