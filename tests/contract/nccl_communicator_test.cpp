#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "contract/backend_contract.h"
#include "contract/loaded_nccl_stand_in.h"
#include "runtime/rendezvous.h"
#include "support/environment.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/sanitized.h"

// Tests specific to the NCCL communicator: its library, its two communicators per rank, its errors
// and its destruction. Requirements on all communicators are tested in
// communicator_contract_test.cpp.
namespace muo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kInvalidUsage = 5;
constexpr int kUnhandledCudaError = 1;
constexpr int kOurVersion = 22809;

class SimtNccl : public testing::Test {
 protected:
  SimtNccl() {
    stand_in().set_version(kOurVersion);
    EXPECT_EQ(stand_in().alive(), 0);
    static_cast<void>(calls());
  }

  static const NcclStandIn& stand_in() { return loaded_nccl_stand_in(); }
  static std::vector<std::string> calls() {
    std::vector<std::string> lines;
    std::istringstream text(stand_in().calls());
    for (std::string line; std::getline(text, line);)
      lines.push_back(line);
    return lines;
  }

  static std::unique_ptr<DeviceGroup> group(int world, int ranks_per_device = 1) {
    const LoadedPlugin loaded = load_simt();
    if (loaded.plugin == nullptr) throw Error(loaded.missing);
    return std::make_unique<DeviceGroup>(GroupOptions{.world = world,
                                                      .plugin = loaded.plugin,
                                                      .ranks_per_device = ranks_per_device,
                                                      .communicator = CommunicatorKind::kNccl,
                                                      .watch = patient_watch()});
  }
  static void run(int world, const std::function<void(RankContext&)>& body) {
    group(world)->run(body);
  }
  static std::unique_ptr<Graph> captured_all_reduce(RankContext& rank, const Tensor& out,
                                                    const Tensor& in) {
    return rank.comm.capture([&] { rank.communicator.all_reduce(rank.comm, 7, out, in); });
  }
};

TEST_F(SimtNccl, ALibraryThatIsTooOldIsRefusedWithBothVersions) {
  stand_in().set_version(22105);
  EXPECT_THAT(message_of<InputError>([] { group(1); }),
              AllOf(HasSubstr("2.21.5"), HasSubstr("too old"), HasSubstr("2.28.0"),
                    HasSubstr("--comm peer")));
  stand_in().set_version(23000);
  EXPECT_NO_THROW(group(1));
}

TEST_F(SimtNccl, RanksThatShareAGpuAreRefusedUnlessVersionAndEnvironmentAllowIt) {
  struct Case {
    int version;
    std::optional<std::string> variable;
    const char* found;
  };
  for (const auto& [version, variable, found] :
       {Case{22907, "1", "(found: 2.29.7)"}, Case{23007, std::nullopt, "(found: 2.30.7)"},
        Case{23007, "0", "(found: 2.30.7)"}}) {
    stand_in().set_version(version);
    const ScopedEnvironment set("NCCL_MULTI_RANK_GPU_ENABLE", variable);
    EXPECT_THAT(message_of<InputError>([] { group(3, 2); }),
                AllOf(HasSubstr("ranks 0 and 1 share GPU 0, which needs "
                                "NCCL_MULTI_RANK_GPU_ENABLE=1 and NCCL 2.30.0 or newer"),
                      HasSubstr(found), HasSubstr("--comm peer")));
  }
  EXPECT_EQ(stand_in().alive(), 0);
  stand_in().set_version(23000);
  const ScopedEnvironment set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  EXPECT_NO_THROW(group(3, 2));
}

// Kernels of ranks on one GPU wait for each other there, so they must all fit at once.
TEST_F(SimtNccl, RanksThatShareAGpuDivideItsCtas) {
  stand_in().set_version(23007);
  const ScopedEnvironment set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  for (const auto& [ranks_per_device, ctas] : {std::pair{1, 16}, {2, 8}, {3, 5}, {20, 1}}) {
    group(ranks_per_device == 20 ? 20 : 3, ranks_per_device);
    EXPECT_EQ(stand_in().max_ctas(), ctas) << ranks_per_device;
  }
}

TEST_F(SimtNccl, GraphsAndEagerWorkHaveCommunicatorsOfTheirOwn) {
  run(2, [](RankContext& rank) {
    const DeviceVector<float> in(rank, {1, 2, 3, 4, 5});
    const DeviceVector<float> out(rank, 5);
    rank.barrier.arrive([] { static_cast<void>(calls()); });  // discards the calls made by joining
    const auto graph = captured_all_reduce(rank, out, in);
    rank.barrier.arrive(
        [] { EXPECT_EQ(calls(), (std::vector<std::string>(2, "ncclAllReduce graph 5"))); });
    for (int i = 0; i < 2; ++i) {
      rank.comm.launch(*graph);
      rank.comm.synchronize();
    }
    EXPECT_EQ(out.get(), (Floats{2, 4, 6, 8, 10}));
    rank.barrier.arrive([] { EXPECT_TRUE(calls().empty()) << "a replay calls nothing"; });
    rank.communicator.all_reduce(rank.comm, 8, out, in);
    rank.barrier.arrive(
        [] { EXPECT_EQ(calls(), (std::vector<std::string>(2, "ncclAllReduce eager 5"))); });
    rank.communicator.check();
  });
  EXPECT_EQ(stand_in().alive(), 0) << "destroyed with the group";
}

// So that no capture needs a new connection.
TEST_F(SimtNccl, JoiningConnectsBothCommunicators) {
  run(2, [](RankContext& /*rank*/) {});
  const std::vector<std::string> made = calls();
  for (const char* comm : {"graph", "eager"})
    for (const char* call : {"ncclAllReduce", "ncclSend", "ncclRecv"})
      EXPECT_GE(std::ranges::count_if(
                    made, [start = std::string(call) + " " + comm](
                              const std::string& line) { return line.starts_with(start); }),
                2)
          << call << " " << comm;
}

TEST_F(SimtNccl, EqualPartsAreGatheredByNcclsOwnAllGather) {
  run(2, [](RankContext& rank) {
    const DeviceVector<float> in(rank, {1, 2});
    const DeviceVector<float> out(rank, 4);
    rank.barrier.arrive([] { static_cast<void>(calls()); });
    rank.communicator.all_gather_v(rank.comm, 1, out, in, std::vector<std::int64_t>{2, 2});
    rank.barrier.arrive(
        [] { EXPECT_EQ(calls(), (std::vector<std::string>(2, "ncclAllGather eager 2"))); });
    rank.comm.synchronize();
    EXPECT_EQ(out.get(), (Floats{1, 2, 1, 2}));
  });
}

// Longer than what is received at a time, and with shares that are not aligned for vectors.
TEST_F(SimtNccl, SumsOfBF16AreExactInPiecesAndAtAnyAlignment) {
  constexpr std::size_t kChunk = std::size_t{1} << 21U;  // of nccl_bf16.cu
  const std::size_t size = test::kSanitized ? 22 : 2 * kChunk + 6;
  run(2, [&](RankContext& rank) {
    std::vector<BF16> mine(size), want(size);
    for (std::size_t i = 0; i < size; ++i) {
      mine[i] = to_bf16(static_cast<float>(i % 100 + 1) * (rank.rank == 0 ? 1.0F : 1.25F));
      want[i] = to_bf16(static_cast<float>(i % 100 + 1) * 2.25F);
    }
    const DeviceVector<BF16> in(rank, mine), out(rank, size);
    rank.communicator.all_reduce(rank.comm, 1, out, in);
    rank.comm.synchronize();
    EXPECT_TRUE(std::ranges::equal(out.get(), want, {}, &BF16::bits, &BF16::bits));
  });
}

TEST_F(SimtNccl, AnErrorOfACallIsOursWithNcclsText) {
  const auto failing = [](const char* function, auto enqueue) {
    return message_of<Error>([&] {
      run(2, [&](RankContext& rank) {
        const DeviceVector<float> in(rank, 4);
        const DeviceVector<float> out(rank, 4);
        rank.barrier.arrive([&] { stand_in().fail_next(function, kUnhandledCudaError); });
        enqueue(rank, out.tensor(), in.tensor());
        rank.comm.synchronize();
        rank.communicator.check();
      });
    });
  };
  EXPECT_THAT(failing("ncclAllReduce",
                      [](RankContext& rank, const Tensor& out, const Tensor& in) {
                        rank.communicator.all_reduce(rank.comm, 7, out, in);
                      }),
              AllOf(HasSubstr("NCCL 2.28.9"), HasSubstr("ncclAllReduce"),
                    HasSubstr("unhandled cuda error (planted failure)"),
                    HasSubstr("all_reduce with tag 7 of 4 fp32 on rank")));
  // Within a group of calls, and at its end.
  for (const char* function : {"ncclSend", "ncclGroupEnd"})
    EXPECT_THAT(failing(function,
                        [](RankContext& rank, const Tensor& out, const Tensor& in) {
                          rank.communicator.all_to_all(rank.comm, 8, out, in);
                        }),
                AllOf(HasSubstr(function), HasSubstr("all_to_all with tag 8")));
  EXPECT_EQ(stand_in().alive(), 0) << "aborted";
  EXPECT_EQ(stand_in().open_groups(), 0);
}

TEST_F(SimtNccl, ARankThatCannotJoinReleasesTheOthers) {
  for (const char* function : {"ncclGetUniqueId", "ncclCommInitRankConfig"}) {
    stand_in().fail_next(function, kUnhandledCudaError);
    EXPECT_THAT(message_of<Error>([] { group(3); }), HasSubstr(function));
  }
  EXPECT_EQ(stand_in().alive(), 0);
}

TEST_F(SimtNccl, WhatFailsLaterIsFoundByCheck) {
  const std::string error = message_of<Error>([] {
    run(2, [](RankContext& rank) {
      const DeviceVector<float> in(rank, 4);
      rank.communicator.all_reduce(rank.comm, 1, in, in);
      rank.comm.synchronize();
      rank.communicator.check();
      rank.barrier.arrive([] { stand_in().fail_next("a collective", kInvalidUsage); });
      rank.communicator.check();
      rank.barrier.arrive();  // one of the two has thrown
    });
  });
  EXPECT_THAT(error, AllOf(HasSubstr("a collective: invalid usage"), HasSubstr("rank ")));
}

TEST_F(SimtNccl, AReplayThatWaitsForADeadPeerEnds) {
  const std::string error = message_of<Error>([] {
    run(3, [](RankContext& rank) {
      const DeviceVector<float> in(rank, 4);
      const DeviceVector<float> out(rank, 4);
      const auto graph = captured_all_reduce(rank, out, in);
      rank.barrier.arrive();
      if (rank.rank == 1) throw Error("rank 1 dies");
      rank.comm.launch(*graph);
      rank.comm.synchronize();
      EXPECT_THROW(rank.communicator.check(), PeerFailed);
      EXPECT_THROW(rank.communicator.all_reduce(rank.comm, 9, out, in), PeerFailed);
      rank.communicator.check();
    });
  });
  EXPECT_EQ(error, "rank 1: rank 1 dies");
  EXPECT_EQ(stand_in().alive(), 0);
}

// A peer that neither arrives nor fails can be detected by the watchdog only.
TEST_F(SimtNccl, AReplayThatWaitsForAStuckPeerEnds) {
  std::atomic<int> released = 0;
  const std::string error = message_of<Error>([&] {
    const LoadedPlugin loaded = load_simt();
    DeviceGroup ranks({.world = 3,
                       .plugin = loaded.plugin,
                       .communicator = CommunicatorKind::kNccl,
                       .watch = {.stuck_after = std::chrono::milliseconds(700),
                                 .grace = std::chrono::seconds(20)}});
    ranks.run([&](RankContext& rank) {
      const DeviceVector<float> in(rank, 4);
      const DeviceVector<float> out(rank, 4);
      const auto graph = captured_all_reduce(rank, out, in);
      rank.progress.begin_step(4);
      while (rank.rank == 1) {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        rank.progress.enter("nothing");
      }
      rank.comm.launch(*graph);
      EXPECT_THROW(rank.wait(rank.comm), PeerFailed);
      ++released;
      rank.communicator.check();
    });
  });
  EXPECT_THAT(error, testing::StartsWith("rank 1, step 4: no heartbeat for 0.7"));
  EXPECT_EQ(released, 2);
  EXPECT_EQ(stand_in().alive(), 0);
}

// Violates the required order, graphs first: NCCL would wait for ever.
TEST_F(SimtNccl, AGraphThatOutlivesItsCommunicatorIsNotWaitedForForever) {
  std::unique_ptr<Graph> graph;
  testing::internal::CaptureStderr();
  run(1, [&](RankContext& rank) {
    const DeviceVector<float> in(rank, 4);
    graph = captured_all_reduce(rank, in, in);
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("'graph' of rank 0"), HasSubstr("a graph still contains its work")));
  EXPECT_EQ(stand_in().alive(), 1);
  graph.reset();
  EXPECT_TRUE(test::eventually([] { return stand_in().alive() == 0; }));
}

TEST_F(SimtNccl, BytesAreThoseOfWhatWasEnqueued) {
  run(2, [](RankContext& rank) {
    const DeviceVector<float> full(rank, 8);
    const DeviceVector<float> shard(rank, 4);
    rank.communicator.reduce_scatter(rank.comm, 1, shard, full);
    EXPECT_EQ(rank.communicator.bytes_sent(), 16);
    const auto graph = captured_all_reduce(rank, full, full);
    EXPECT_EQ(rank.communicator.bytes_sent(), 16 + 32);
    rank.comm.launch(*graph);
    rank.comm.synchronize();
    EXPECT_EQ(rank.communicator.bytes_sent(), 16 + 32);
  });
}

}  // namespace
}  // namespace muo::test
