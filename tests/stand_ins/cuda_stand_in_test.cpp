// Tests the rules that the stand-in enforces, by CUDA's calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "stand_ins/launches.h"
#include "stand_ins/lock.h"
#include "stand_ins/world.h"
#include "support/eventually.h"

namespace muo::stand_in {
namespace {

using testing::ExitedWithCode;
constexpr int kMisuse = 97;

// A call that must succeed.
#define CALL(call) ASSERT_EQ(call, cudaSuccess)
// A call that must fail with `error`, which it then clears.
#define FAILS(call, error)  \
  do {                      \
    EXPECT_EQ(call, error); \
    cudaGetLastError();     \
  } while (false)

class CudaStandIn : public testing::Test {
 protected:
  void SetUp() override {
    for (cudaStream_t* stream : {&a_, &b_})
      CALL(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&fork_, &join_})
      CALL(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    CALL(cudaMalloc(&memory_, 64));
  }
  void TearDown() override {
    for (const cudaStream_t stream : {a_, b_})
      CALL(cudaStreamSynchronize(stream));
    CALL(cudaFree(memory_));
    for (const cudaEvent_t event : {fork_, join_})
      CALL(cudaEventDestroy(event));
    for (const cudaStream_t stream : {a_, b_})
      CALL(cudaStreamDestroy(stream));
  }
  static cudaError_t work(cudaStream_t stream, Task task) {
    return enqueue(stream, "a test's work", {}, std::move(task));
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) const {
    CALL(cudaStreamBeginCapture(a_, mode));
  }
  // Ends the capture, which must fail with `error`.
  void end(cudaError_t error) const {
    cudaGraph_t graph = nullptr;
    FAILS(cudaStreamEndCapture(a_, &graph), error);
    EXPECT_EQ(graph, nullptr);
    cudaStreamCaptureStatus status{};
    CALL(cudaStreamIsCapturing(b_, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  }
  [[nodiscard]] cudaGraphExec_t ended() const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return executable;
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  void* memory_ = nullptr;
};
using CudaStandInDeathTest = CudaStandIn;

TEST_F(CudaStandIn, StreamsRunBesideEachOtherAndEventsOrderThem) {
  std::atomic<int> state = 0;
  CALL(work(a_, [&] {
    while (state != 1)
      std::this_thread::yield();
    state = 2;
  }));
  CALL(cudaEventRecord(fork_, a_));
  CALL(work(b_, [&] { state = 1; }));
  CALL(cudaStreamWaitEvent(b_, fork_));
  CALL(work(b_, [&] { state = state == 2 ? 3 : -1; }));
  CALL(cudaStreamSynchronize(b_));
  EXPECT_EQ(state, 3);
}

// Unordered nodes occur in both orders.
TEST_F(CudaStandIn, BranchesOfAGraphComeInAnyOrder) {
  std::vector<int> order;
  std::mutex mutex;
  const auto note = [&](int i) {
    return [&, i] {
      const std::lock_guard lock(mutex);
      order.push_back(i);
    };
  };
  begin();
  CALL(work(a_, note(0)));
  CALL(cudaEventRecord(fork_, a_));
  CALL(cudaStreamWaitEvent(b_, fork_));
  CALL(work(b_, note(1)));
  CALL(work(a_, note(2)));
  CALL(cudaEventRecord(join_, b_));
  CALL(cudaStreamWaitEvent(a_, join_));
  CALL(work(a_, note(3)));
  const cudaGraphExec_t graph = ended();
  EXPECT_TRUE(order.empty());
  bool seen[2] = {};
  for (int i = 0; i < 10000 && !(seen[0] && seen[1]); ++i) {
    order.clear();
    CALL(cudaGraphLaunch(graph, a_));
    CALL(cudaStreamSynchronize(a_));
    ASSERT_EQ(order.size(), 4U);
    ASSERT_EQ(order.front() * 10 + order.back(), 3);
    seen[order[1] - 1] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1]);
  CALL(cudaGraphExecDestroy(graph));
}

TEST_F(CudaStandIn, ABranchThatIsNotJoinedSpoilsTheCapture) {
  begin();
  CALL(cudaEventRecord(fork_, a_));
  CALL(cudaStreamWaitEvent(b_, fork_));
  CALL(work(b_, [] {}));
  end(cudaErrorStreamCaptureUnjoined);
}

TEST_F(CudaStandIn, WhatACaptureCannotHoldSpoilsIt) {
  const std::function<cudaError_t()> calls[] = {
      [&] { return cudaStreamSynchronize(a_); }, [&] { return cudaStreamDestroy(a_); },
      [&] { return cudaStreamSynchronize(b_); }, [&] { return cudaFree(memory_); },
      [&] {
        void* more = nullptr;
        return cudaMalloc(&more, 8);
      }};
  for (const auto& call : calls) {
    begin();
    FAILS(call(), cudaErrorStreamCaptureUnsupported);
    FAILS(work(a_, [] {}), cudaErrorStreamCaptureInvalidated);
    end(cudaErrorStreamCaptureInvalidated);
  }
  begin();
  CALL(cudaEventRecord(fork_, a_));
  FAILS(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
  end(cudaErrorStreamCaptureInvalidated);
}

TEST_F(CudaStandIn, EventsDoNotLeadIntoOrOutOfACapture) {
  CALL(cudaEventRecord(fork_, b_));
  begin();
  FAILS(cudaStreamWaitEvent(a_, fork_), cudaErrorStreamCaptureIsolation);
  end(cudaErrorStreamCaptureInvalidated);
  begin();
  CALL(cudaEventRecord(fork_, a_));
  CALL(cudaStreamBeginCapture(b_, cudaStreamCaptureModeThreadLocal));
  FAILS(cudaStreamWaitEvent(b_, fork_), cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  FAILS(cudaStreamEndCapture(b_, &graph), cudaErrorStreamCaptureInvalidated);
  end(cudaErrorStreamCaptureInvalidated);
  FAILS(cudaStreamWaitEvent(b_, fork_), cudaErrorCapturedEvent);
}

TEST_F(CudaStandIn, ACaptureIsEndedWhereItBegan) {
  cudaGraph_t graph = nullptr;
  FAILS(cudaStreamEndCapture(a_, &graph), cudaErrorIllegalState);
  begin();
  CALL(cudaEventRecord(fork_, a_));
  CALL(cudaStreamWaitEvent(b_, fork_));
  FAILS(cudaStreamEndCapture(b_, &graph), cudaErrorStreamCaptureUnmatched);
  std::jthread([&] {
    FAILS(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  end(cudaErrorStreamCaptureInvalidated);
}

// A graph with a WHILE node, captured on one stream.
class CudaStandInLoop : public CudaStandIn {
 protected:
  // Begins to capture the body; end_body() goes on behind the node.
  void begin_loop() {
    begin();
    cudaStreamCaptureStatus status{};
    CALL(cudaStreamGetCaptureInfo(a_, &status, nullptr, &graph_, nullptr, nullptr, nullptr));
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    CALL(cudaGraphConditionalHandleCreate(&handle_, graph_, 0, 0));
    CALL(work(a_, [this] {
      passes_ = 0;
      cudaGraphSetConditional(handle_, passes_ < count_ ? 1 : 0);
    }));
    const cudaGraphNode_t* after = nullptr;
    std::size_t count = 0;
    CALL(cudaStreamGetCaptureInfo(a_, &status, nullptr, &graph_, &after, nullptr, &count));
    const std::vector<cudaGraphNode_t> last(after, after + count);
    CALL(cudaStreamEndCapture(a_, &graph_));
    params_ = {.type = cudaGraphNodeTypeConditional,
               .conditional = {handle_, cudaGraphCondTypeWhile, 1, nullptr}};
    CALL(cudaGraphAddNode(&node_, graph_, last.data(), nullptr, last.size(), &params_));
    body_ = params_.conditional.phGraph_out[0];
    CALL(cudaStreamBeginCaptureToGraph(a_, body_, nullptr, nullptr, 0,
                                       cudaStreamCaptureModeThreadLocal));
  }
  void end_body() {
    CALL(work(a_, [this] { cudaGraphSetConditional(handle_, ++passes_ < count_ ? 1 : 0); }));
    cudaGraph_t ended = nullptr;
    CALL(cudaStreamEndCapture(a_, &ended));
    EXPECT_EQ(ended, body_);
    CALL(cudaStreamBeginCaptureToGraph(a_, graph_, &node_, nullptr, 1,
                                       cudaStreamCaptureModeThreadLocal));
  }

  cudaGraph_t graph_ = nullptr, body_ = nullptr;
  cudaGraphNode_t node_ = nullptr;
  cudaGraphConditionalHandle handle_ = 0;
  cudaGraphNodeParams params_{};
  int passes_ = 0, count_ = 0;
};

TEST_F(CudaStandInLoop, RunsItsBodyAsLongAsItsConditionHolds) {
  std::string order;
  begin_loop();
  CALL(work(a_, [&] { order += 'a'; }));
  CALL(work(a_, [&] { order += 'b'; }));
  end_body();
  CALL(work(a_, [&] { order += '.'; }));
  const cudaGraphExec_t graph = ended();
  for (const auto& [count, want] :
       {std::pair{3, "ababab."}, std::pair{0, "."}, std::pair{1, "ab."}}) {
    order.clear();
    count_ = count;
    CALL(cudaGraphLaunch(graph, a_));
    CALL(cudaStreamSynchronize(a_));
    EXPECT_EQ(order, want);
  }
  CALL(cudaGraphExecDestroy(graph));
}

TEST_F(CudaStandInLoop, ABodyHoldsWorkOfItsGpuOnly) {
  float pageable = 0;
  begin_loop();
  FAILS(cudaMemcpyAsync(memory_, &pageable, 4, cudaMemcpyDefault, a_), cudaErrorInvalidValue);
  FAILS(enqueue_collective(a_, "a collective", {}, [] {}), cudaErrorStreamCaptureUnsupported);
  FAILS(cudaGraphDestroy(body_), cudaErrorInvalidValue);
  FAILS(cudaGraphAddNode(&node_, graph_, nullptr, nullptr, 0, &params_), cudaErrorInvalidValue);
  end_body();
  CALL(cudaGraphExecDestroy(ended()));
}

TEST_F(CudaStandIn, AConditionBelongsToANode) {
  begin();
  cudaStreamCaptureStatus status{};
  cudaGraph_t graph = nullptr;
  cudaGraphConditionalHandle handle = 0;
  CALL(cudaStreamGetCaptureInfo(a_, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  CALL(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  CALL(cudaStreamEndCapture(a_, &graph));
  cudaGraphExec_t executable = nullptr;
  FAILS(cudaGraphInstantiate(&executable, graph, 0), cudaErrorInvalidValue);
  CALL(cudaGraphDestroy(graph));
}

// Another thread's capture matters in global mode only, and a relaxed thread may call everything.
TEST_F(CudaStandIn, ModesSayWhoseCallsSpoilACapture) {
  const auto elsewhere = [&](cudaError_t expected) {
    std::jthread([&] { FAILS(cudaStreamSynchronize(b_), expected); }).join();
  };
  begin();
  elsewhere(cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CALL(cudaThreadExchangeStreamCaptureMode(&mode));
  CALL(cudaStreamSynchronize(b_));
  CALL(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  CALL(cudaGraphExecDestroy(ended()));
  begin(cudaStreamCaptureModeRelaxed);
  CALL(cudaStreamSynchronize(b_));
  CALL(cudaGraphExecDestroy(ended()));
  begin(cudaStreamCaptureModeGlobal);
  elsewhere(cudaErrorStreamCaptureUnsupported);
  end(cudaErrorStreamCaptureInvalidated);
}

// Enqueues work on `branches` streams, each of which waits for all others.
void spin_together(int branches) {
  std::vector<cudaStream_t> streams(static_cast<std::size_t>(branches));
  std::atomic<int> there = 0;
  for (cudaStream_t& stream : streams)
    CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const cudaStream_t stream : streams)
    CALL(enqueue(stream, "a collective", {}, [&, branches] {
      ++there;
      while (there < branches)
        std::this_thread::yield();
    }));
  for (const cudaStream_t stream : streams)
    CALL(cudaStreamSynchronize(stream));
}

// Exits with 1 after a timeout, which is short if a hang is expected.
void exit_if_it_hangs(bool expected) {
  std::thread([expected] {
    std::this_thread::sleep_for(std::chrono::seconds(expected ? 2 : 60));
    _exit(1);
  }).detach();
}

TEST(HardwareQueuesDeathTest, WorkWaitsBehindWhatSpinsInItsQueue) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto with_queues = [](const char* queues, int branches) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 1);  // NOLINT(concurrency-mt-unsafe): one thread
    exit_if_it_hangs(std::string_view(queues) == "3");
    spin_together(branches);
    _exit(0);
  };
  EXPECT_EXIT(with_queues("4", 4), ExitedWithCode(0), "");
  EXPECT_EXIT(with_queues("3", 4), ExitedWithCode(1), "");
}

// Two streams wait for each other on four queues; between their creations three were created and
// destroyed.
TEST(HardwareQueuesDeathTest, GivenInTurnTwoStreamsMayShareOneWhileOthersAreFree) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto with_queues = [](const char* how) {
    // NOLINTBEGIN(concurrency-mt-unsafe): one thread
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);
    setenv("CUDA_STAND_IN_QUEUES", how, 1);
    // NOLINTEND(concurrency-mt-unsafe)
    exit_if_it_hangs(std::string_view(how) == "in_turn");
    cudaStream_t stream = nullptr;
    CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 3; ++i) {
      cudaStream_t passing = nullptr;
      CALL(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking));
      CALL(cudaStreamDestroy(passing));
    }
    cudaStream_t last = nullptr;
    CALL(cudaStreamCreateWithFlags(&last, cudaStreamNonBlocking));
    std::atomic<int> there = 0;
    for (const cudaStream_t one : {stream, last})
      CALL(enqueue(one, "a collective", {}, [&] {
        ++there;
        while (there < 2)
          std::this_thread::yield();
      }));
    CALL(cudaStreamSynchronize(last));
    CALL(cudaStreamSynchronize(stream));
    _exit(0);
  };
  EXPECT_EXIT(with_queues("least_used"), ExitedWithCode(0), "");
  EXPECT_EXIT(with_queues("in_turn"), ExitedWithCode(1), "");
}

// Calls that may wait for the whole GPU do so, and block all other threads' calls meanwhile: if a
// kernel waits for another thread's launch, this is a deadlock.
TEST(HardwareQueuesDeathTest, CallsThatWaitForAWholeGpuKeepOthersFromLaunching) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto while_a_kernel_waits = [](const std::function<void(cudaGraph_t)>& call) {
    setenv("CUDA_STAND_IN_PATIENCE", "1", 1);  // NOLINT(concurrency-mt-unsafe): one thread
    cudaStream_t a = nullptr;
    cudaStream_t b = nullptr;
    for (cudaStream_t* stream : {&a, &b})
      CALL(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    cudaGraph_t graph = nullptr;
    CALL(cudaStreamBeginCapture(b, cudaStreamCaptureModeThreadLocal));
    CALL(cudaStreamEndCapture(b, &graph));
    std::atomic<bool> launched = false;
    CALL(enqueue(a, "a collective", {}, [&] {
      while (!launched)
        std::this_thread::yield();
    }));
    std::thread waiting([&] { call(graph); });
    const auto waits = [] {
      const Lock lock;
      return world().gpus[0]->alone != std::thread::id();
    };
    if (!test::eventually(waits)) _exit(1);
    CALL(enqueue(b, "its peer's", {}, [&] { launched = true; }));
    waiting.join();
    for (const cudaStream_t stream : {a, b})
      CALL(cudaStreamSynchronize(stream));
    std::exit(0);  // NOLINT(concurrency-mt-unsafe)
  };
  const std::pair<const char*, std::function<void(cudaGraph_t)>> calls[] = {
      {"cudaMalloc",
       [](cudaGraph_t) {
         void* memory = nullptr;
         CALL(cudaMalloc(&memory, 8));
       }},
      {"cudaHostAlloc",
       [](cudaGraph_t) {
         void* memory = nullptr;
         CALL(cudaHostAlloc(&memory, 8, cudaHostAllocPortable));
       }},
      {"cudaStreamCreateWithPriority",
       [](cudaGraph_t) {
         cudaStream_t stream = nullptr;
         CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
       }},
      {"cudaGraphInstantiate",
       [](cudaGraph_t graph) {
         cudaGraphExec_t executable = nullptr;
         CALL(cudaGraphInstantiate(&executable, graph, 0));
       }},
  };
  for (const auto& [name, call] : calls)
    EXPECT_EXIT(while_a_kernel_waits(call), ExitedWithCode(kMisuse),
                std::string(name) + " timed out waiting for all work of GPU 0");
}

void leave(const std::function<void()>& body) {
  body();
  std::exit(0);  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(CudaStandInDeathTest, WrongUseThatNobodyAsksAboutEndsTheProcessBadly) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(leave([&] {
                begin();
                static_cast<void>(cudaFree(memory_));
              }),
              ExitedWithCode(kMisuse), "cudaFree during a capture");
  EXPECT_EXIT(leave([&] {
                begin();
                FAILS(cudaFree(memory_), cudaErrorStreamCaptureUnsupported);
              }),
              ExitedWithCode(0), "");
  EXPECT_EXIT(leave([&] {
                CALL(enqueue(a_, "a long one", {.certain = {memory_}, .possible = {}},
                             [&] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }));
                CALL(cudaFree(memory_));
              }),
              ExitedWithCode(kMisuse), "64 bytes that pending work may use");
  EXPECT_EXIT(leave([&] {
                begin();
                CALL(cudaMemsetAsync(memory_, 0, 64, a_));
                const cudaGraphExec_t graph = ended();
                CALL(cudaFree(memory_));
                EXPECT_EQ(cudaGraphLaunch(graph, a_), cudaErrorIllegalAddress);
                EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorIllegalAddress);  // for ever
              }),
              ExitedWithCode(kMisuse), "uses memory that was freed");
  EXPECT_EXIT(leave([&] {
                CALL(cudaSetDevice(1));
                cudaStream_t other = nullptr;
                CALL(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
                static_cast<void>(
                    enqueue(other, "a kernel", {.certain = {memory_}, .possible = {}}, [] {}));
              }),
              ExitedWithCode(kMisuse), "memory of GPU 0, which GPU 1 may not access");
  EXPECT_EXIT(
      leave([&] { CALL(enqueue(a_, "a kernel", {.certain = {this}, .possible = {}}, [] {})); }),
      ExitedWithCode(kMisuse), "an address that is not GPU memory");
}

#ifdef __SANITIZE_THREAD__
// Detected whatever the order in which the work ran.
TEST_F(CudaStandInDeathTest, WhatNothingOrdersIsARace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write_twice = [&](bool ordered) {
    int value = 0;
    const auto write = [&value] { ++value; };
    CALL(work(a_, write));
    CALL(cudaEventRecord(fork_, a_));
    if (ordered) CALL(cudaStreamWaitEvent(b_, fork_));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CALL(work(b_, write));
    CALL(cudaStreamSynchronize(a_));
    CALL(cudaStreamSynchronize(b_));
  };
  const auto is_bad = [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) != 0; };
  EXPECT_EXIT(leave([&] { write_twice(false); }), is_bad, "ThreadSanitizer: data race");
  EXPECT_EXIT(leave([&] { write_twice(true); }), ExitedWithCode(0), "");
}
#endif

TEST_F(CudaStandIn, HandlesThatWereDestroyedAreRefused) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CALL(cudaEventCreate(&event));
  CALL(cudaStreamDestroy(stream));
  CALL(cudaEventDestroy(event));
  FAILS(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  FAILS(cudaEventRecord(event, a_), cudaErrorInvalidResourceHandle);
  FAILS(work(nullptr, [] {}), cudaErrorStreamCaptureImplicit);
}

}  // namespace
}  // namespace muo::stand_in
