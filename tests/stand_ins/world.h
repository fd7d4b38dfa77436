#pragma once

// The machine that the stand-in is: GPUs with hardware queues, memory, and what handles stand for.

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

// A piece of work on a hardware queue. It runs when it is the first of its queue and all that it
// comes after is done.
struct Operation {
  std::string name;
  Task task = {};  // none: it only orders others
  std::vector<std::shared_ptr<Operation>> after = {};
  std::vector<std::uint64_t> memory = {};  // numbers of the allocations that it may touch
  Gpu* gpu = nullptr;
  Queue* queue = nullptr;

  std::uint64_t number = 0;
  std::size_t unmet = 0;  // of `after`
  std::vector<Operation*> successors = {};
  bool done = false;
  char submitted = 0, finished = 0;  // for ThreadSanitizer: when it was enqueued, and when it ended
};
using OperationPtr = std::shared_ptr<Operation>;

// One hardware queue: an OS thread that runs its operations in their order and waits in front of
// one that may not run yet, as a GPU's front end does.
class Queue {
 public:
  void push(const OperationPtr& operation);  // under the lock
  void wake() { changed_.notify_one(); }
  // Under the lock, when the process ends: its thread, which goes if it waits for work.
  std::thread leave();
  int users = 0;  // streams, and branches of graphs

 private:
  void work();

  std::deque<OperationPtr> operations_;
  std::condition_variable changed_;
  std::thread thread_;
  bool waits_ = false;
  bool leaves_ = false;
};

struct Gpu {
  int index = 0;
  std::vector<std::unique_ptr<Queue>> queues = {};
  std::set<std::uint64_t> pending = {};  // numbers of operations that are not done
  std::set<int> peers = {};              // GPUs whose memory it may access
  std::set<const void*> loaded = {};     // kernels
  std::map<const void*, std::size_t> opt_in = {};
  std::size_t allocated = 0;
  cudaError_t error = cudaSuccess;  // once not, for ever
  std::size_t turn = 0;             // of the queue that comes next, if they are given in turn
  std::thread::id alone = {};       // the thread whose call waits for all of it: others wait
};

inline constexpr int kPinned = -1, kManaged = -2;
struct Allocation {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int gpu = kPinned;  // or, below 0, where the host's and a GPU's lie at one address
  std::uint64_t number = 0;
};

struct Node {
  std::string name;
  Task task;
  std::vector<std::size_t> after;
  std::vector<std::uint64_t> memory;
};

struct Capture {
  CUgraph_st* graph = nullptr;
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
  std::vector<std::size_t> after = {};  // of the next node of the capture
};
struct CUevent_st {
  muo::stand_in::Gpu* gpu;
  bool timed;
  muo::stand_in::OperationPtr recorded = {};
  muo::stand_in::CapturePtr capture = {};  // if it was last recorded in one
  std::vector<std::size_t> nodes = {};
  std::shared_ptr<double> seconds = {};
};
struct CUgraph_st {
  std::vector<muo::stand_in::Node> nodes = {};
  muo::stand_in::Gpu* gpu = nullptr;
};
struct CUgraphExec_st {
  std::vector<muo::stand_in::Node> nodes;
  muo::stand_in::Gpu* gpu;
  std::vector<std::size_t> branch = {};            // of each node
  std::vector<muo::stand_in::Queue*> queues = {};  // of each branch but the first
  muo::stand_in::OperationPtr last = {};
};

namespace muo::stand_in {

struct Settings {
  std::size_t queues;  // CUDA_DEVICE_MAX_CONNECTIONS, CUDA's own variable; 8 without
  bool in_turn;        // CUDA_STAND_IN_QUEUES=in_turn: given to streams and branches one after the
                       // other, as a driver may; else the one that fewest use
  bool blocking;       // CUDA_LAUNCH_BLOCKING, CUDA's own
  std::uint64_t seed;  // CUDA_STAND_IN_SEED: of delays and of the order in graphs; 0: no delays
  std::size_t memory;  // SIMT_GPU_MEMORY: bytes of each GPU
  int gpus;            // CUDA_STAND_IN_GPUS; 8 without
  cudaError_t error;   // CUDA_STAND_IN_ERROR: what CUDA answers when it is asked for GPUs, or of
                       // code for one
  int driver;          // CUDA_STAND_IN_DRIVER: 13000 without
  bool nan;            // SIMT_NAN_SCRATCH: new memory is full of NaNs
  double patience;     // CUDA_STAND_IN_PATIENCE: seconds that a call may wait for a whole GPU
};

// Everything, under one lock (lock.h). Never destroyed: a GPU may be at work when the process ends.
struct World {
  World();

  const Settings settings;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::map<const std::byte*, Allocation> memory;
  std::set<std::uint64_t> alive;        // numbers of allocations
  std::map<std::uint64_t, int> in_use;  // by pending operations
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
  std::set<CapturePtr> captures;               // under way
  std::map<const void*, std::string> kernels;  // names by address
  Compiled compiled;
  std::condition_variable finished;  // an operation is
  std::uint64_t numbers = 0;
  std::uint64_t random = 0;

  std::uint64_t next_random();
};
World& world();

// Of the calling thread.
struct ThreadState {
  int gpu = 0;
  cudaError_t error = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  int resident = 0;
  std::vector<std::string> unread;  // wrong uses whose error nobody has asked for
};
ThreadState& thread_state();

// All that follow: under the lock.

// A failure that is the caller's wrong use: the process ends with exit code 97 unless its thread
// asks for the error (cudaGetLastError), as who expects one does.
cudaError_t wrong(cudaError_t error, const std::string& what);
// A failure of another kind: no memory, a driver that is missing.
cudaError_t failed(cudaError_t error);
// What a GPU finds out: it is lost from now on, and the process ends with exit code 97.
void fault(Gpu& gpu, const std::string& what);
// Ends the process with 97 if it would end well; of what no call reports.
void misuse(const std::string& what);

Gpu& current_gpu();
// The GPU's error, once it is lost.
cudaError_t usable(Gpu& gpu);
// Of a call that may not be made during captures: which of them it spoils.
cudaError_t unsafe(const char* call);

// Work, once what it comes after is done.
OperationPtr submit(Gpu& gpu, Queue& queue, Operation description);
void wait_for(Lock& lock, OperationPtr operation);  // a copy: its stream may go meanwhile
// For all that the GPU has been given, while no thread gives it more: a driver may hold its lock.
// Reports who waits longer than the patience.
void wait_for_all(Lock& lock, Gpu& gpu, const std::string& why);
// Until no other thread waits for all of it.
void wait_for_turn(Lock& lock, Gpu& gpu);
Queue& queue_for_one_more(Gpu& gpu);

// As a node of the capture, or at once. `kernel` if it is one.
cudaError_t enqueue(Lock& lock, cudaStream_t stream, const std::string& name,
                    const Addresses& addresses, Task task, const void* kernel = nullptr);
// Loads a kernel, or a library's, unless it is there.
cudaError_t load(Lock& lock, Gpu& gpu, const void* kernel, const std::string& name);

// The allocation that holds the address (or ends there), or null.
const Allocation* find(const void* address);

}  // namespace muo::stand_in
