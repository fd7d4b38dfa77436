#pragma once

// The stand-in's machine: GPUs with hardware queues, memory, and the objects behind handles.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "stand_ins/launches.h"
#include "stand_ins/lock.h"

namespace muo::stand_in {

struct Gpu;
class Queue;

// A launch of a graph, for profilers.
struct Launch {
  std::uint32_t correlation = 0;
  std::map<std::uint64_t, std::uint64_t> bodies = {};  // ids of nodes of loops, by captured id
};
using LaunchPtr = std::shared_ptr<const Launch>;

// Callbacks of a profiler (cupti.cpp).
struct Profiler {
  virtual ~Profiler() = default;
  // By the thread that captures or instantiates, under the lock.
  virtual void node_created(std::uint64_t id) = 0;
  // Returns the node's id in the executable graph of this number.
  virtual std::uint64_t node_cloned(std::uint32_t executable, std::uint64_t original) = 0;
  // By the thread that launches, without the lock.
  virtual void launches(std::uint32_t correlation) = 0;
  // By the thread of a queue, without the lock. Times are in seconds of the steady clock; `node`: 0
  // if it is not of a graph.
  virtual void ran(const std::string& name, std::uint64_t node, std::uint32_t correlation,
                   double begin, double end) = 0;
};

// A piece of work on a hardware queue. It runs when it is the first of its queue and all its
// dependencies (`after`) are done.
struct Operation {
  std::string name;
  Task task = {};  // empty: it only orders others
  std::vector<std::shared_ptr<Operation>> after = {};
  std::vector<std::uint64_t> memory = {};  // numbers of the allocations that it may access
  Gpu* gpu = nullptr;
  Queue* queue = nullptr;

  LaunchPtr launch = {};   // null: not of a graph
  std::uint64_t node = 0;  // id in the launched graph

  std::uint64_t number = 0;
  std::size_t unmet = 0;  // pending dependencies in `after`
  std::vector<Operation*> successors = {};
  bool done = false;
  char submitted = 0, finished = 0;  // ThreadSanitizer's edges of its submission and its end
};
using OperationPtr = std::shared_ptr<Operation>;

// One hardware queue: an OS thread that runs its operations in order and blocks at one that may not
// run yet, as a GPU's front end does.
class Queue {
 public:
  void push(const OperationPtr& operation);  // under the lock
  void wake() { changed_.notify_one(); }
  // Under the lock, when the process ends: stops and returns its thread, if that waits for work.
  std::thread stop();
  int users = 0;  // streams and branches of graphs that use it

 private:
  void work();

  std::deque<OperationPtr> operations_;
  std::condition_variable changed_;
  std::thread thread_;
  bool waits_ = false;
  bool stopping_ = false;
};

struct Gpu {
  int index = 0;
  std::vector<std::unique_ptr<Queue>> queues = {};
  std::set<std::uint64_t> pending = {};  // numbers of unfinished operations
  std::set<int> peers = {};              // GPUs whose memory it may access
  std::set<const void*> loaded = {};     // loaded kernels
  std::map<const void*, std::size_t> opt_in = {};
  std::size_t allocated = 0;
  cudaError_t error = cudaSuccess;  // permanent once it is an error
  std::size_t turn = 0;             // next queue, if they are assigned in turn
  std::thread::id alone = {};       // thread whose call waits for the whole GPU and blocks others
};

inline constexpr int kPinned = -1, kManaged = -2;
struct Allocation {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int gpu = kPinned;  // below 0: memory with one address on host and GPUs
  std::uint64_t number = 0;
};

// The condition of a WHILE node, and its body.
struct Loop {
  cudaGraphConditionalHandle handle = 0;
  unsigned condition = 0;
  int owners = 0;              // graphs that contain it, executable ones included
  CUgraph_st* body = nullptr;  // null until a node has the condition
};
using LoopPtr = std::shared_ptr<Loop>;

struct Node {
  std::string name;
  Task task;
  std::vector<std::size_t> after;
  std::vector<std::uint64_t> memory;
  LoopPtr loop = {};     // of a WHILE node
  std::uint64_t id = 0;  // for profilers
};

struct Capture {
  CUgraph_st* graph = nullptr;
  bool adds = false;  // to a graph that existed before
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalid = false;
};
using CapturePtr = std::shared_ptr<Capture>;

}  // namespace muo::stand_in

struct CUstream_st {
  muo::stand_in::Gpu* gpu;
  muo::stand_in::Queue* queue;
  muo::stand_in::OperationPtr last = {};
  muo::stand_in::CapturePtr capture = {};
  std::vector<std::size_t> after = {};        // dependencies of the next node of the capture
  std::vector<cudaGraphNode_t> handles = {};  // of `after`, for cudaStreamGetCaptureInfo
};
struct CUevent_st {
  muo::stand_in::Gpu* gpu;
  bool timed;
  muo::stand_in::OperationPtr recorded = {};
  muo::stand_in::CapturePtr capture = {};  // set if it was last recorded in a capture
  std::vector<std::size_t> nodes = {};
  std::shared_ptr<double> seconds = {};
};
struct CUgraph_st {
  std::vector<muo::stand_in::Node> nodes = {};
  muo::stand_in::Gpu* gpu = nullptr;
  std::vector<muo::stand_in::LoopPtr> conditions = {};
  bool is_body = false;  // of a loop, which owns it

  void add(muo::stand_in::Node node);
};
struct CUgraphExec_st {
  std::vector<muo::stand_in::Node> nodes;
  muo::stand_in::Gpu* gpu;
  std::vector<std::size_t> branch = {};            // of each node
  std::vector<muo::stand_in::Queue*> queues = {};  // of each branch except the first
  muo::stand_in::OperationPtr last = {};
  std::uint32_t number = 0;
  std::map<std::uint64_t, std::uint64_t> bodies = {};  // Launch::bodies
};

namespace muo::stand_in {

struct Settings {
  std::size_t queues;  // CUDA_DEVICE_MAX_CONNECTIONS, CUDA's own variable; default 8
  bool in_turn;   // CUDA_STAND_IN_QUEUES=in_turn: streams and branches get queues in turn, as a
                  // driver may do; else the least used one
  bool blocking;  // CUDA_LAUNCH_BLOCKING, CUDA's own variable
  std::uint64_t seed;  // CUDA_STAND_IN_SEED: of delays and of the order in graphs; 0: no delays
  std::size_t memory;  // SIMT_GPU_MEMORY: bytes per GPU
  int gpus;            // CUDA_STAND_IN_GPUS; default 8
  cudaError_t error;   // CUDA_STAND_IN_ERROR: the result of queries for GPUs, or for a GPU's code
  int driver;          // CUDA_STAND_IN_DRIVER; default 13000
  bool nan;            // SIMT_NAN_SCRATCH: new memory is filled with NaNs
  double patience;     // CUDA_STAND_IN_PATIENCE: seconds that a call may wait for a whole GPU
};

// The whole state, under one lock (lock.h). Never destroyed, as a GPU may run when the process
// ends.
struct World {
  World();

  const Settings settings;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::map<const std::byte*, Allocation> memory;
  std::set<std::uint64_t> alive;        // numbers of allocations
  std::map<std::uint64_t, int> in_use;  // number of pending operations by allocation
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
  std::map<cudaGraphConditionalHandle, std::weak_ptr<Loop>> conditions;
  std::set<CapturePtr> captures;               // current captures
  std::map<const void*, std::string> kernels;  // names by address
  Compiled compiled;
  std::condition_variable finished;  // notified when an operation is done
  std::uint64_t numbers = 0;
  std::atomic<Profiler*> profiler = nullptr;  // set once
  std::uint64_t random = 0;

  std::uint64_t next_random();
};
World& world();

// State of the calling thread.
struct ThreadState {
  int gpu = 0;
  cudaError_t error = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  int resident = 0;
  std::vector<std::string> unread;  // wrong uses whose error the thread has not read
};
ThreadState& thread_state();

// Call all of the following under the lock.

// Reports a wrong use by the caller: the process ends with exit code 97 unless its thread reads the
// error (cudaGetLastError), as a thread that expects one does.
cudaError_t wrong(cudaError_t error, const std::string& what);
// Reports another failure, e.g. too little memory or a missing driver.
cudaError_t failed(cudaError_t error);
// Reports an error that a GPU detects: it is lost from now on, and the process ends with exit code
// 97.
void fault(Gpu& gpu, const std::string& what);
// Reports an error that no call returns: the process exits with code 97.
void misuse(const std::string& what);

Gpu& current_gpu();
// The GPU's error if it is lost, else cudaSuccess.
cudaError_t usable(Gpu& gpu);
// For a call that is not allowed during captures: invalidates those that it affects.
cudaError_t unsafe(const char* call);
cudaError_t known(cudaGraph_t graph);
// True if the stream captures the body of a loop.
bool captures_loop(cudaStream_t stream);

// The operation that the calling thread of a queue runs.
const Operation* running_operation();
// Runs `task` and tells the profiler when it ran, if there is one. Call it without the lock.
void run_profiled(const std::string& name, std::uint64_t node, std::uint32_t correlation,
                  const Task& task);
// Submits work, which runs once its dependencies are done.
OperationPtr submit(Gpu& gpu, Queue& queue, Operation description);
// Waits until the operation is done. `operation` is passed by value, as its stream may be destroyed
// meanwhile.
void wait_for(Lock& lock, OperationPtr operation);
// Waits for all work of the GPU, while no thread may submit more, as a driver may hold its lock.
// Reports a wait that is longer than Settings::patience.
void wait_for_all(Lock& lock, Gpu& gpu, const std::string& why);
// Waits until no other thread waits for the whole GPU.
void wait_for_turn(Lock& lock, Gpu& gpu);
Queue& queue_for_one_more(Gpu& gpu);

// Adds work to the stream's capture, or submits it. `kernel`: null if it is none.
cudaError_t enqueue(Lock& lock, cudaStream_t stream, const std::string& name,
                    const Addresses& addresses, Task task, const void* kernel = nullptr);
// Loads a kernel of the project or of a library, unless it is loaded.
cudaError_t load(Lock& lock, Gpu& gpu, const void* kernel, const std::string& name);

// The allocation that contains the address or ends there, or null.
const Allocation* find(const void* address);

}  // namespace muo::stand_in
