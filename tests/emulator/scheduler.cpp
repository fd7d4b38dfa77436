#include "emulator/scheduler.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include "emulator/kernel_name.h"
#include "emulator/sanitizers.h"
#include "emulator/shared_memory.h"

namespace muo::simt {
namespace {

constexpr unsigned kMaxThreads = 1024;  // per block
constexpr unsigned kLanes = 32;
constexpr double kLongestPause = 60;  // seconds

#ifdef __SANITIZE_THREAD__
constexpr bool kOwnFibers = true;  // another thread's old stack would look like a race
#else
constexpr bool kOwnFibers = false;  // a stack that was just used is still in the cache
#endif

constinit thread_local Scheduler* scheduler = nullptr;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool in(unsigned mask, unsigned lane) { return (mask >> lane & 1U) != 0; }

const char* name_of(CudaThread::State state) {
  switch (state) {
    case CudaThread::State::kNew:
      return "not started";
    case CudaThread::State::kReady:
      return "ready";
    case CudaThread::State::kAtBarrier:
      return "at a barrier";
    case CudaThread::State::kAtCollective:
      return "at a warp collective";
    case CudaThread::State::kDone:
      return "done";
  }
  return "?";
}

// Block `i` of the random order is block (first + i * step) % count, step and count coprime.
std::uint32_t coprime_to(std::uint64_t count, std::uint64_t random) {
  auto step = static_cast<std::uint32_t>(random % count);
  while (std::gcd(std::uint64_t{step}, count) != 1)
    ++step;
  return step;
}

}  // namespace

std::span<std::byte> scheduler_state() { return std::as_writable_bytes(std::span(&scheduler, 1)); }

Scheduler& Scheduler::current() { return *scheduler; }

Scheduler::Scheduler() : stacks_(kMaxThreads), threads_(kMaxThreads) {}

Scheduler::~Scheduler() = default;

MUO_SIMT_UNSEEN std::uint64_t Scheduler::random() {  // xorshift64
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_;
}

// The body of every fiber: runs one CUDA thread after another.
MUO_SIMT_UNSEEN void Scheduler::run_threads(void* scheduler_of_fiber) {
  auto* self = static_cast<Scheduler*>(scheduler_of_fiber);
  for (;;) {
    acquire(&self->begin_edge_);
    self->running_->copies.clear();
    self->running_->products = {};
    self->running_->apart = false;
    self->launch_->call(self->launch_->arguments);
    self->async_.end_thread();
    release(&self->end_edge_);
    self->running_->state = CudaThread::State::kDone;
    self->running_->fiber->suspend();
  }
}

MUO_SIMT_UNSEEN void Scheduler::prepare(const Launch& launch, std::uint64_t seed) {
  launch_ = &launch;
  order_ = settings().order;
  random_state_ = (seed + 1) * 0x9E3779B97F4A7C15U | 1U;
  blockDim = launch.block;
  gridDim = launch.grid;
  count_ = launch.block.x * launch.block.y * launch.block.z;
  while (fibers_.size() < count_) {
    const std::size_t i = fibers_.size();
    fibers_.push_back(std::make_unique<Fiber>(stacks_.stack(i), 5 * i, &run_threads, this));
  }
  for (unsigned i = 0; i < count_; ++i) {
    CudaThread& thread = threads_[i];
    thread.index = {i % launch.block.x, i / launch.block.x % launch.block.y,
                    i / (launch.block.x * launch.block.y)};
    thread.lane = i % kLanes;
    thread.warp = i / kLanes;
    thread.fiber = fibers_[i].get();
  }
}

MUO_SIMT_UNSEEN void Scheduler::start_block(unsigned number) {
  const dim3 grid = launch_->grid;
  blockIdx = {number % grid.x, number / grid.x % grid.y, number / (grid.x * grid.y)};
  alive_ = count_;
  at_barrier_ = votes_ = 0;
  std::fill_n(waiting_, kLanes, 0U);
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].state = CudaThread::State::kNew;
    threads_[i].site = {};
  }
  idle_.clear();
  if (!kOwnFibers)
    for (unsigned i = count_; i-- > 0;)
      idle_.push_back(fibers_[i].get());
}

MUO_SIMT_UNSEEN void Scheduler::run(const Launch& launch, unsigned worker, unsigned workers,
                                    std::uint64_t seed) {
  scheduler = this;
  prepare(launch, seed);
  SharedMemory shared(launch.kernel, launch.shared_bytes);
  async_.begin_launch(shared.parts());
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  // All workers have the same seed, and so the same order of blocks.
  const std::uint64_t first = order_ == Order::kRandom ? random() % blocks : 0;
  const std::uint64_t step = order_ == Order::kRandom ? coprime_to(blocks, random()) : 1;
  random_state_ += worker;
  for (std::uint64_t i = worker; i < blocks; i += workers) {
    const std::uint64_t block = (first + i * step) % blocks;
    shared.fill_with_nans();
    async_.begin_block();
    start_block(static_cast<unsigned>(order_ == Order::kReverse ? blocks - 1 - block : block));
    release(&begin_edge_);
    run_block();
    acquire(&end_edge_);
    async_.end_block();
  }
  scheduler = nullptr;
}

// Every pass visits every warp. That alone would keep warps almost in lock-step, which hides
// missing barriers; so in every second block a warp runs until all its lanes wait. And some lanes
// of one warp, often all but the first, run only when nothing else can.
MUO_SIMT_UNSEEN void Scheduler::run_block() {
  const unsigned warps = (count_ + kLanes - 1) / kLanes;
  unsigned order[kMaxThreads / kLanes];
  for (unsigned i = 0; i < warps; ++i)
    order[i] = order_ == Order::kReverse ? warps - 1 - i : i;
  const bool greedy = order_ != Order::kRandom || random() >> 63 != 0;
  const unsigned slow_warp =
      order_ == Order::kRandom ? static_cast<unsigned>(random() % warps) : warps;
  const unsigned slow_lanes = random() >> 63 != 0 ? ~1U : static_cast<unsigned>(random() >> 32);
  paused_since_ = 0;
  for (bool all_run = false; alive_ > 0;) {
    if (order_ == Order::kRandom)
      for (unsigned i = warps - 1; i > 0; --i)
        std::swap(order[i], order[(random() >> 32) * (i + 1) >> 32]);
    Turn turn = Turn::kNothing;
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned flip = order_ == Order::kForward   ? 0
                            : order_ == Order::kReverse ? kLanes - 1
                                                        : static_cast<unsigned>(random() >> 59);
      const bool slow = order[i] == slow_warp;
      held_back_ = slow && !all_run ? slow_lanes : 0;
      turn = std::max(turn, run_warp(order[i], flip, greedy && !(slow && all_run)));
    }
    running_ = nullptr;
    all_run = turn < Turn::kRan && !all_run;
    if (all_run) continue;
    if (turn <= Turn::kStuck) fail("deadlock: every thread waits");
    yield_to_others(turn == Turn::kRan);
  }
}

// The next thread of this pass over the warp's lanes that can run, or nullptr.
MUO_SIMT_UNSEEN CudaThread* Scheduler::next_of_warp() {
  while (next_lane_ < kLanes) {
    const unsigned lane = next_lane_++ ^ flip_, i = first_of_warp_ + lane;
    if (i < count_ && !in(held_back_, lane) && threads_[i].state <= CudaThread::State::kReady)
      return &threads_[i];
  }
  return nullptr;
}

MUO_SIMT_UNSEEN Turn Scheduler::run_warp(unsigned warp, unsigned flip, bool greedy) {
  Turn turn = Turn::kNothing;
  first_of_warp_ = warp * kLanes;
  flip_ = flip;
  do {
    ran_ = false;
    next_lane_ = 0;
    while (CudaThread* thread = next_of_warp()) {
      resume(*thread);
      if (running_->turn == Turn::kRan) ran_ = true;
      turn = std::max(turn, ran_ ? Turn::kRan : running_->turn);
    }
  } while (ran_ && greedy);
  return turn;
}

MUO_SIMT_UNSEEN void Scheduler::begin_turn(CudaThread& thread) {
  if (!kOwnFibers && thread.state == CudaThread::State::kNew) {
    thread.fiber = idle_.back();
    idle_.pop_back();
  }
  thread.state = CudaThread::State::kReady;
  thread.turn = Turn::kRan;
  running_ = &thread;
  threadIdx = thread.index;
}

MUO_SIMT_UNSEEN void Scheduler::resume(CudaThread& thread) {
  begin_turn(thread);
  thread.fiber->resume();
  const CudaThread& last = *running_;  // `thread`, or the one to which wait() switched
  if (last.state != CudaThread::State::kDone) return;
  if (!kOwnFibers) idle_.push_back(last.fiber);
  // A barrier does not wait for threads that are done.
  if (--alive_ > 0 && at_barrier_ == alive_) open_barrier();
}

// Called when the running thread must wait: switches directly to the warp's next thread, without
// the scheduler in between.
MUO_SIMT_UNSEEN void Scheduler::wait() {
  Fiber& self = *running_->fiber;
  CudaThread* next = next_of_warp();
  if (next == nullptr) return self.suspend();
  ran_ = true;
  begin_turn(*next);
  self.switch_to(*next->fiber);
}

MUO_SIMT_UNSEEN void Scheduler::yield_to_others(bool worked) {
  if (worked) {
    paused_since_ = 0;
    return;
  }
  if (paused_since_ == 0) paused_since_ = now();
  if (now() - paused_since_ > kLongestPause)
    fail("every thread waits, some in spin_pause() for what never comes");
  std::this_thread::sleep_for(std::chrono::microseconds(50));  // leaves the core to other ranks
}

MUO_SIMT_UNSEEN void Scheduler::pause(Turn turn, Site site) {
  running_->site = site;
  running_->turn = turn;
  running_->fiber->suspend();
}

MUO_SIMT_UNSEEN void Scheduler::open_barrier() {
  at_barrier_ = 0;
  ++barriers_;
  outcome_ = votes_;  // not std::exchange(), which ThreadSanitizer would instrument
  votes_ = 0;
  for (unsigned i = 0; i < count_; ++i)
    if (threads_[i].state == CudaThread::State::kAtBarrier)
      threads_[i].state = CudaThread::State::kReady;
}

// True for the last thread, which continues without a switch.
MUO_SIMT_UNSEEN bool Scheduler::arrive_at_barrier(bool predicate, Site site) {
  running_->site = site;
  for (unsigned i = 0; at_barrier_ > 0 && i < count_; ++i) {
    const CudaThread& other = threads_[i];
    if (other.state != CudaThread::State::kAtBarrier) continue;
    if (other.site.line != site.line || other.site.file != site.file)
      fail("threads of a block wait at different barriers");
    break;  // the waiting ones have been compared already
  }
  votes_ += predicate ? 1 : 0;
  if (++at_barrier_ == alive_) {
    open_barrier();
    return true;
  }
  running_->state = CudaThread::State::kAtBarrier;
  return false;
}

// Two edges alternate; with one, a slow thread would acquire what others release at the next
// barrier.
MUO_SIMT_UNSEEN unsigned Scheduler::barrier(bool predicate, Site site) {
  char* edge = &barrier_edges_[barriers_ % 2];
  release(edge);
  if (!arrive_at_barrier(predicate, site)) wait();
  acquire(edge);
  running_->apart = false;
  return outcome_;
}

MUO_SIMT_UNSEEN bool Scheduler::arrive_at_collective(unsigned mask, Exchange exchange, Site site) {
  CudaThread& thread = *running_;
  thread.site = site;
  thread.mask = mask;
  thread.exchange = exchange;
  if (!in(mask, thread.lane)) fail("a lane calls a warp collective without being in its mask");
  unsigned& waiting = waiting_[thread.warp];
  waiting |= 1U << thread.lane;
  if ((waiting & mask) != mask) {
    thread.state = CudaThread::State::kAtCollective;
    return false;
  }
  const CudaThread* warp = &threads_[std::size_t{thread.warp} * kLanes];
  for (unsigned i = 0; i < kLanes; ++i)
    if (in(mask, i) && (warp[i].mask != mask || warp[i].exchange != exchange ||
                        warp[i].site.line != site.line || warp[i].site.file != site.file))
      fail("lanes of a warp meet at different collectives, or with different masks");
  waiting &= ~mask;
  return true;
}

// Lanes have separate edges: with overlapping masks, common ones would order too much or too
// little. Collectives of all 32 lanes use those of lane 0, which halves ThreadSanitizer's work.
MUO_SIMT_UNSEEN void Scheduler::collective(unsigned mask, Exchange exchange, Site site) {
  CudaThread* warp = &threads_[std::size_t{running_->warp} * kLanes];
  CudaThread& self = *running_;
  const bool all = mask == ~0U;
  if (all) self.apart = false;
  const unsigned holders = all ? 1U : mask;  // the lanes whose edges are taken
  Edges CudaThread::*const edges = all ? &CudaThread::warp_edges : &CudaThread::own_edges;
  if (!arrive_at_collective(mask, exchange, site)) {
    Edges& mine = (all ? warp[0] : self).*edges;
    release(&mine.arrival);
    wait();
    acquire(&mine.departure);
    return;
  }
  for (unsigned i = 0; i < kLanes; ++i)
    if (in(holders, i)) acquire(&(warp[i].*edges).arrival);
  exchange(warp, mask);
  for (unsigned i = 0; i < kLanes; ++i) {
    if (in(holders, i)) release(&(warp[i].*edges).departure);
    if (in(mask, i)) warp[i].state = CudaThread::State::kReady;  // the own lane is ready already
  }
}

void Scheduler::fail(std::string_view what) {
  std::fprintf(stderr, "simt: %.*s\nsimt: kernel %s, block (%u, %u, %u)",
               static_cast<int>(what.size()), what.data(), kernel_name(launch_->kernel).c_str(),
               blockIdx.x, blockIdx.y, blockIdx.z);
  if (running_ != nullptr)
    std::fprintf(stderr, ", thread (%u, %u, %u)", running_->index.x, running_->index.y,
                 running_->index.z);
  const char* orders[] = {"seq", "rev"};
  if (order_ == Order::kRandom)
    std::fprintf(stderr, ", SIMT_ORDER=%llu\n", static_cast<unsigned long long>(settings().seed));
  else
    std::fprintf(stderr, ", SIMT_ORDER=%s\n", orders[static_cast<int>(order_)]);
  for (unsigned first = 0, end = 0; first < count_; first = end) {  // runs of equal threads
    const CudaThread& thread = threads_[first];
    const auto alike = [&](const CudaThread& other) {
      return other.state == thread.state && other.site.line == thread.site.line &&
             other.site.file == thread.site.file;
    };
    while (end < count_ && alike(threads_[end]))
      ++end;
    std::fprintf(stderr, "simt:   threads %u to %u: %s", first, end - 1, name_of(thread.state));
    if (thread.site.file != nullptr)
      std::fprintf(stderr, ", last waited at %s:%d", thread.site.file, thread.site.line);
    std::fprintf(stderr, "\n");
  }
  std::abort();
}

}  // namespace muo::simt
