// The MPI plug-in's source on a stand-in for MPI, whose processes are threads; and tests of that
// stand-in.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/device_group.h"
#include "runtime/mpi/mpi_plugin.h"
#include "runtime/plugin_entry.h"
#include "stand_ins/mpi/mpi_stand_in.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/split_world.h"
#include "unit/runtime/every_collective.h"

extern "C" const muo::MpiPlugin* muograph_mpi_plugin();

namespace muo {
namespace {

using test::Bytes;
using test::eventually;
using test::message_of;
using test::MpiStandIn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kLongest = 1000;  // bytes per message

// Calls body(process) on a thread per process.
void on_every_process(MpiStandIn& mpi, int processes, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(processes));
  for (int process = 0; process < processes; ++process)
    threads.emplace_back([&mpi, &body, process] {
      const MpiStandIn::Thread thread(mpi, process);
      body(process);
    });
}

std::unique_ptr<ProcessExchange> make(int process, int processes) {
  return muograph_mpi_plugin()->make(process, processes, int{kLongest});
}

TEST(MpiExchange, CollectivesAreBitwiseThoseOfOneProcess) {
  for (const std::vector<int>& split : {std::vector{1, 1}, {2, 2}, {1, 3}, {3, 1}, {1, 1, 2}})
    for (const std::int64_t size : {1, 1031}) {
      const int processes = static_cast<int>(split.size());
      const int world = std::accumulate(split.begin(), split.end(), 0);
      std::vector<Bytes> expected(static_cast<std::size_t>(world)), got = expected;
      DeviceGroup({.world = world}).run([&](RankContext& rank) {
        expected[static_cast<std::size_t>(rank.rank)] =
            test::every_collective(rank, size, DType::kF32);
      });
      MpiStandIn mpi(processes, static_cast<std::uint64_t>(size));
      on_every_process(mpi, processes, [&](int process) {
        const std::unique_ptr<ProcessExchange> exchange = make(process, processes);
        test::LocalRanks ranks(test::world_of(split, process, exchange.get()));
        ranks.run([&](RankContext& rank) {
          const MpiStandIn::Thread thread(mpi, process);
          got[static_cast<std::size_t>(rank.rank)] =
              test::every_collective(rank, size, DType::kF32);
        });
      });
      EXPECT_TRUE(got == expected) << size << " on " << testing::PrintToString(split);
      EXPECT_THAT(mpi.complaints(), IsEmpty());
      for (int process = 0; process < processes; ++process)
        EXPECT_TRUE(mpi.finalized(process));
    }
}

// Sends `sent` bytes to the other of two processes, and receives `received` from it.
void swap(ProcessExchange& exchange, int process, std::size_t sent, std::size_t received) {
  Bytes out(sent), in(received);
  for (std::size_t i = 0; i < sent; ++i)
    out[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(process));
  const std::array<ProcessExchange::Send, 1> sends = {{{1 - process, out}}};
  const std::array<ProcessExchange::Receive, 1> receives = {{{1 - process, in}}};
  exchange.exchange(sends, receives);
  for (std::size_t i = 0; i < received; ++i)
    ASSERT_EQ(in[i], static_cast<std::byte>(i * 7 + static_cast<std::size_t>(1 - process))) << i;
}

TEST(MpiExchange, LongOnesTravelInParts) {
  for (const std::size_t size : {0UL, 1UL, kLongest, kLongest + 1, 5 * kLongest - 1}) {
    MpiStandIn mpi(2);
    on_every_process(mpi, 2, [&](int process) {
      const std::unique_ptr<ProcessExchange> exchange = make(process, 2);
      swap(*exchange, process, size, size);
      swap(*exchange, process, 3, 3);
    });
    EXPECT_THAT(mpi.complaints(), IsEmpty()) << size;
  }
}

TEST(MpiExchange, OtherSizesThanAreDueAreAnError) {
  for (const std::size_t received : {100U, 102U}) {
    MpiStandIn mpi(2);
    on_every_process(mpi, 2, [&](int process) {
      const std::unique_ptr<ProcessExchange> exchange = make(process, 2);
      const std::string error =
          message_of<Error>([&] { swap(*exchange, process, 101, process == 0 ? received : 101); });
      if (process == 1) {
        EXPECT_EQ(error, "no exception");
      } else {
        EXPECT_THAT(error,
                    HasSubstr(received == 100 ? "MPI: MPI_Testall: the stand-in's error 1"
                                              : "MPI: process 1 sent 101 bytes, expected 102"));
        EXPECT_THROW(exchange->exchange({}, {}), PeerFailed);
      }
    });
    EXPECT_FALSE(mpi.finalized(0));
    EXPECT_TRUE(mpi.finalized(1));
  }
}

TEST(MpiExchange, AnAbortReleasesWhoWaitsAndWhoComesLater) {
  MpiStandIn mpi(2);
  Bytes in(100);  // outlives the exchange, whose requests stay pending
  on_every_process(mpi, 2, [&](int process) {
    const std::unique_ptr<ProcessExchange> exchange = make(process, 2);
    if (process == 1) return;
    const std::array<ProcessExchange::Receive, 1> receives = {{{1, in}}};
    {
      RankProgress progress;
      const RankProgress::Thread thread(progress, "a test");
      const std::jthread other([&] {
        EXPECT_TRUE(eventually([&] { return progress.view().activity == Activity::kPeers; }));
        exchange->abort();
        exchange->abort();
      });
      const RankProgress::Scope waiting(Activity::kPeers);
      EXPECT_THROW(exchange->exchange({}, receives), PeerFailed);
    }
    EXPECT_THROW(exchange->exchange({}, {}), PeerFailed);
  });
  EXPECT_THAT(mpi.complaints(), IsEmpty());
  EXPECT_FALSE(mpi.finalized(0));  // it would wait for peers
  EXPECT_TRUE(mpi.finalized(1));
}

TEST(MpiExchange, ARankOfAGroupThatHasFailedWaitsNoLonger) {
  MpiStandIn mpi(2);
  Bytes in(100);
  RankProgress progress;
  on_every_process(mpi, 2, [&](int process) {
    const std::unique_ptr<ProcessExchange> exchange = make(process, 2);
    if (process == 1) {
      EXPECT_TRUE(eventually([&] { return progress.view().activity == Activity::kPeers; }));
      return progress.stop();
    }
    const RankProgress::Thread thread(progress, "a test");
    const std::array<ProcessExchange::Receive, 1> receives = {{{1, in}}};
    {
      const RankProgress::Scope waiting(Activity::kPeers);  // as in RemoteRanks
      EXPECT_THROW(exchange->exchange({}, receives), PeerFailed);
    }
    EXPECT_EQ(progress.view().activity, Activity::kWork);
  });
}

TEST(MpiExchange, AnErrorOfMpiHasItsText) {
  for (const std::string call : {"MPI_Irecv", "MPI_Isend", "MPI_Testall", "MPI_Init_thread"}) {
    MpiStandIn mpi(2);
    if (call == "MPI_Init_thread") mpi.fail(call);
    const MpiStandIn::Thread thread(mpi, 0);
    Bytes in(8);
    EXPECT_EQ(message_of<Error>([&] {
                const std::unique_ptr<ProcessExchange> exchange = make(0, 2);
                mpi.fail(call);
                const std::array<ProcessExchange::Send, 1> sends = {{{1, in}}};
                const std::array<ProcessExchange::Receive, 1> receives = {{{1, in}}};
                exchange->exchange(
                    call == "MPI_Isend" ? sends : std::span<const ProcessExchange::Send>{},
                    call == "MPI_Isend" ? std::span<const ProcessExchange::Receive>{} : receives);
              }),
              "MPI: " + call + ": the stand-in's error 2");
    EXPECT_FALSE(mpi.finalized(0));
  }
}

TEST(MpiExchange, ProcessesThatMpirunDidNotStartAsSuchAreRefused) {
  const auto refused = [](int process, int processes) {
    MpiStandIn mpi(2);
    const MpiStandIn::Thread thread(mpi, 0);
    return message_of<InputError>([&] { make(process, processes); });
  };
  EXPECT_EQ(refused(0, 2), "no exception");
  EXPECT_EQ(refused(1, 2),
            "MPI numbers this process 0 of 2, the launch numbers it 1 of 2: start all processes by "
            "one mpirun");
  EXPECT_THAT(refused(0, 3), HasSubstr("process 0 of 2, the launch numbers it 0 of 3"));
  MpiStandIn mpi(1);
  mpi.set_thread_level(MPI_THREAD_FUNNELED);
  const MpiStandIn::Thread thread(mpi, 0);
  EXPECT_THAT(message_of<InputError>([] { make(0, 1); }), HasSubstr("MPI_THREAD_SERIALIZED"));
}

TEST(Plugin, OfAnotherVersionIsNotUsed) {
  const MpiPlugin* (*const older)() = [] {
    static const MpiPlugin plugin = {.version = kPluginVersion - 1};
    return &plugin;
  };
  EXPECT_EQ(of_this_build<MpiPlugin>(nullptr), nullptr);
  EXPECT_EQ(of_this_build(older), nullptr);
  EXPECT_EQ(of_this_build(&muograph_mpi_plugin), muograph_mpi_plugin());
}

TEST(MpiExchange, StartsOnce) {
  MpiStandIn mpi(1);
  const MpiStandIn::Thread thread(mpi, 0);
  const std::unique_ptr<ProcessExchange> exchange = make(0, 1);
  EXPECT_THAT(message_of<Error>([] { make(0, 1); }), HasSubstr("MPI can be initialised only once"));
}

void on_bus_error(int) {}

TEST(MpiExchange, SignalHandlersStayTheProgramsOwn) {
  struct sigaction own {
  }, before{}, after{};
  own.sa_handler = &on_bus_error;
  ASSERT_EQ(::sigaction(SIGBUS, &own, &before), 0);
  MpiStandIn mpi(1);
  const MpiStandIn::Thread thread(mpi, 0);
  const std::unique_ptr<ProcessExchange> exchange = make(0, 1);
  ASSERT_EQ(::sigaction(SIGBUS, &before, &after), 0);
  EXPECT_EQ(after.sa_handler, &on_bus_error);
}

// A process that sends to itself.
class MpiStandInTest : public testing::Test {
 protected:
  void SetUp() override {
    int level = 0, flag = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    MPI_Initialized(&flag);
    EXPECT_EQ(flag, 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  void post(std::span<std::byte> out, std::span<std::byte> in) {
    MPI_Irecv(in.data(), static_cast<int>(in.size()), MPI_BYTE, 0, 0, MPI_COMM_WORLD,
              &requests_[0]);
    MPI_Isend(out.data(), static_cast<int>(out.size()), MPI_BYTE, 0, 0, MPI_COMM_WORLD,
              &requests_[1]);
  }
  int wait() {
    std::array<MPI_Status, 2> statuses{};
    int code = MPI_SUCCESS;
    for (int done = 0; done == 0;)
      code = MPI_Testall(2, requests_.data(), &done, statuses.data());
    return code;
  }
  [[nodiscard]] std::vector<std::string> complaints() const { return mpi_.complaints(); }

  MpiStandIn mpi_{1};
  MpiStandIn::Thread thread_{mpi_, 0};
  std::array<MPI_Request, 2> requests_{};
  Bytes out_ = Bytes(50), in_ = Bytes(50);
};

TEST_F(MpiStandInTest, HasNothingAgainstWhatIsRight) {
  post(out_, in_);
  EXPECT_EQ(wait(), MPI_SUCCESS);
  MPI_Finalize();
  EXPECT_THAT(complaints(), IsEmpty());
}

TEST_F(MpiStandInTest, SeesSizesThatDiffer) {
  post(out_, std::span(in_).first(40));
  EXPECT_EQ(wait(), MPI_ERR_IN_STATUS);
  EXPECT_THAT(complaints(), ElementsAre(HasSubstr("receives 40 bytes of 50")));
}

TEST_F(MpiStandInTest, SeesWritesToMemoryOfPendingRequests) {
  post(out_, in_);
  out_[7] = std::byte{1};
  wait();
  EXPECT_THAT(complaints(), ElementsAre(HasSubstr("was written to while it was sent")));
  post(out_, in_);
  in_[7] = std::byte{1};
  wait();
  EXPECT_THAT(complaints(), testing::Contains(HasSubstr("while it was received into")));
}

TEST_F(MpiStandInTest, SeesMemoryThatTwoRequestsShare) {
  post(out_, out_);
  EXPECT_THAT(complaints(), ElementsAre(HasSubstr("memory that a pending request has")));
}

TEST_F(MpiStandInTest, SeesCallsOfTwoThreadsAtOnce) {
  const auto call_often = [this] {
    const MpiStandIn::Thread thread(mpi_, 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (complaints().empty() && std::chrono::steady_clock::now() < end) {
      int rank = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    }
  };
  { const std::jthread one(call_often), two(call_often); }
  EXPECT_THAT(complaints(),
              testing::Contains(HasSubstr("another thread of the process is in MPI")));
}

TEST_F(MpiStandInTest, SeesRequestsThatAreLeftAndCallsAfterTheEnd) {
  post(out_, in_);
  MPI_Finalize();
  EXPECT_THAT(complaints(), ElementsAre(HasSubstr("MPI_Finalize of process 0 leaves requests")));
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  EXPECT_THAT(complaints(), testing::Contains(HasSubstr("is called outside MPI_Init_thread")));
}

}  // namespace
}  // namespace muo
