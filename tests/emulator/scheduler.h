#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "emulator/fiber.h"
#include "emulator/settings.h"
#include "emulator/types.h"

namespace muo::simt {

// Where in the source a CUDA thread waits. As the last parameter of an intrinsic it says where the
// kernel calls it.
struct Site {
  const char* file = nullptr;
  int line = 0;
};
#define MUO_SIMT_SITE ::muo::simt::Site site = {__builtin_FILE(), __builtin_LINE()}

struct CudaThread;
// Carries out a warp collective for the lanes in `mask`, all of which wait: from everybody's
// `given` to everybody's `taken`. Which function it is says which operation a lane takes part in.
using Exchange = void (*)(CudaThread* warp, unsigned mask);

// A copy into shared memory that has not arrived; without destination, the end of a group.
struct PendingCopy {
  std::byte* to = nullptr;
  const void* from = nullptr;  // nullptr: zeros
  std::size_t bytes = 0;
};

// A copy that nobody has waited for, by a barrier of the block (warpgroup.h).
struct TileCopy {
  const void* barrier = nullptr;
  std::int32_t bytes = 0;
  std::function<void()> carry_out;
};

// For ThreadSanitizer: to and from warp collectives.
struct Edges {
  char arrival = 0, departure = 0;
};

struct CudaThread {
  enum class State : std::uint8_t { kNew, kReady, kAtBarrier, kAtCollective, kDone };

  State state = State::kNew;
  bool paused = false;  // waits for something that is no thread of this block
  unsigned lane = 0, warp = 0;
  uint3 index{};
  Fiber* fiber = nullptr;
  Site site = {};

  unsigned mask = 0;
  Exchange exchange = nullptr;
  int source = 0;  // lane to read from
  alignas(16) std::byte given[64];
  alignas(16) std::byte taken[64];
  Edges own_edges, warp_edges;  // the lane's; in lane 0 those of collectives of all lanes

  std::vector<PendingCopy> copies;
  std::vector<std::function<void()>> products;  // of warpgroups, not waited for; empty: as above
};

struct Launch {
  const void* kernel = nullptr;
  void (*call)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  dim3 grid, block;
  std::size_t shared_bytes = 0;     // dynamic
  std::size_t shared_opt_in = 0;    // dynamic bytes that the kernel opted in for; 0: it did not
  std::size_t parameter_bytes = 0;  // 0: not known
  bool resident = false;  // blocks wait for each other through other launches: run them all at once
};

// Runs blocks one after another, the threads of a block in turns; a thread gives up its turn only
// where it waits. One OS thread at a time.
class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Every `workers`th block from number `worker` on.
  void run(const Launch& launch, unsigned worker, unsigned workers, std::uint64_t seed);

  // The rest is called by CUDA threads. The scheduler that runs the calling one:
  static Scheduler& current();
  CudaThread& thread() { return *running_; }
  std::vector<TileCopy>& tiles() { return tiles_; }  // of the block
  [[nodiscard]] Order order() const { return order_; }
  std::uint64_t random();
  // __syncthreads(); returns for how many threads `predicate` holds.
  unsigned barrier(bool predicate, Site site);
  // Waits for the lanes in `mask`; the last to come carries out `exchange`.
  void collective(unsigned mask, Exchange exchange, Site site);
  // For loops that wait for what another launch writes: lets all others go first.
  void pause(Site site);
  // Prints what is wrong, in which kernel and thread, and where the others are; aborts.
  [[noreturn]] void fail(std::string_view what);

 private:
  enum class Turn : std::uint8_t { kNothing, kPaused, kRan };

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
  void others_turn(bool worked);

  FiberStacks stacks_;
  std::vector<TileCopy> tiles_;
  std::vector<CudaThread> threads_;  // of a block
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  const Launch* launch_ = nullptr;
  CudaThread* running_ = nullptr;
  Order order_ = Order::kForward;
  std::uint64_t random_state_ = 1;
  unsigned count_ = 0, alive_ = 0;          // threads of the block
  unsigned at_barrier_ = 0, barriers_ = 0;  // threads there; how many were opened in this launch
  unsigned votes_ = 0, outcome_ = 0;
  // The pass over a warp's lanes: its first thread, which lane is next, XOR what, and whether any
  // ran.
  unsigned first_of_warp_ = 0, next_lane_ = 0, flip_ = 0;
  bool ran_ = false;
  unsigned waiting_[32] = {};  // lanes of each warp that wait in a collective
  double paused_since_ = 0;
  char begin_edge_ = 0, end_edge_ = 0, barrier_edges_[2] = {};
};

// Throws Error if no GPU would accept the launch.
void check(const Launch& launch);
// Runs all blocks.
void run(const Launch& launch);

}  // namespace muo::simt
