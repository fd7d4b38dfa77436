#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "emulator/async_proxy.h"
#include "emulator/fiber.h"
#include "emulator/settings.h"
#include "emulator/types.h"

namespace muo::simt {

// The source location at which a CUDA thread waits. As the last parameter of an intrinsic it is the
// location of the kernel's call.
struct Site {
  const char* file = nullptr;
  int line = 0;
};
#define MUO_SIMT_SITE ::muo::simt::Site site = {__builtin_FILE(), __builtin_LINE()}

struct CudaThread;
// Carries out a warp collective for the lanes in `mask`, all of which wait: from their `given` to
// their `taken`. The function also identifies the operation, so that mismatches are detected.
using Exchange = void (*)(CudaThread* warp, unsigned mask);

// A copy into shared memory that has not arrived; without a destination, the end of a group.
struct PendingCopy {
  std::byte* to = nullptr;
  const void* from = nullptr;  // nullptr: zeros
  std::size_t bytes = 0;
};

// ThreadSanitizer's edges to and from warp collectives.
struct Edges {
  char arrival = 0, departure = 0;
};

// What a thread did until it waited; kStuck: it waits for the block, kPaused: for something
// outside.
enum class Turn : std::uint8_t { kNothing, kStuck, kPaused, kRan };

struct CudaThread {
  enum class State : std::uint8_t { kNew, kReady, kAtBarrier, kAtCollective, kDone };

  State state = State::kNew;
  Turn turn = Turn::kRan;
  bool apart = false;  // has started a copy or arrived at a barrier since its warp last met
  unsigned lane = 0, warp = 0;
  uint3 index{};
  Fiber* fiber = nullptr;
  Site site = {};

  unsigned mask = 0;
  Exchange exchange = nullptr;
  int source = 0;  // lane to read from
  alignas(16) std::byte given[64];
  alignas(16) std::byte taken[64];
  Edges own_edges, warp_edges;  // the lane's; those of collectives of all lanes, used in lane 0

  std::vector<PendingCopy> copies;
  Products products;
};

struct Launch {
  const void* kernel = nullptr;
  void (*call)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  dim3 grid, block;
  std::size_t shared_bytes = 0;     // dynamic
  std::size_t shared_opt_in = 0;    // dynamic bytes for which the kernel opted in; 0: none
  std::size_t parameter_bytes = 0;  // 0: unknown
  bool resident = false;            // run all blocks at once, as they wait for other launches
};

// Runs blocks one after another, and the threads of a block in turns; a thread's turn ends only
// when it waits. Used by one OS thread at a time.
class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Runs every `workers`th block from number `worker` on.
  void run(const Launch& launch, unsigned worker, unsigned workers, std::uint64_t seed);

  // The rest is called by CUDA threads.

  // The scheduler that runs the calling thread.
  static Scheduler& current();
  CudaThread& thread() { return *running_; }
  AsyncProxy& async() { return async_; }
  [[nodiscard]] Order order() const { return order_; }
  std::uint64_t random();
  // __syncthreads(); returns the number of threads for which `predicate` holds.
  unsigned barrier(bool predicate, Site site);
  // Waits for the lanes in `mask`; the last to arrive carries out `exchange`.
  void collective(unsigned mask, Exchange exchange, Site site);
  // For loops that wait for other threads: lets them run first.
  void pause(Turn turn, Site site);
  // Prints `what`, the kernel and thread, and where the other threads wait; aborts.
  [[noreturn]] void fail(std::string_view what);

 private:
  static void run_threads(void* scheduler);
  void prepare(const Launch& launch, std::uint64_t seed);
  void start_block(unsigned number);
  void run_block();
  Turn run_warp(unsigned warp, unsigned flip, bool greedy);
  CudaThread* next_of_warp();
  void begin_turn(CudaThread& thread);
  void resume(CudaThread& thread);
  void wait();
  bool arrive_at_barrier(bool predicate, Site site);
  void open_barrier();
  bool arrive_at_collective(unsigned mask, Exchange exchange, Site site);
  void yield_to_others(bool worked);

  FiberStacks stacks_;
  AsyncProxy async_{*this};
  std::vector<CudaThread> threads_;  // of the block
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  const Launch* launch_ = nullptr;
  CudaThread* running_ = nullptr;
  Order order_ = Order::kForward;
  std::uint64_t random_state_ = 1;
  unsigned count_ = 0, alive_ = 0;          // threads of the block
  unsigned at_barrier_ = 0, barriers_ = 0;  // threads that wait; barriers opened in this launch
  unsigned votes_ = 0, outcome_ = 0;
  // The pass over a warp's lanes: its first thread, the next lane (XOR flip_), and whether any ran.
  unsigned first_of_warp_ = 0, next_lane_ = 0, flip_ = 0;
  unsigned held_back_ = 0;  // lanes of the warp that do not run in this pass
  bool ran_ = false;
  unsigned waiting_[32] = {};  // masks of the lanes of each warp that wait in a collective
  double paused_since_ = 0;
  char begin_edge_ = 0, end_edge_ = 0, barrier_edges_[2] = {};
};

// Throws Error if no GPU would accept the launch.
void check(const Launch& launch);
// Runs all blocks.
void run(const Launch& launch);

}  // namespace muo::simt
