#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is not in <csignal>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "contract/backend_contract.h"
#include "contract/loaded_nccl_stand_in.h"
#include "support/several_processes.h"

// NCCL's ranks in several processes, on the stand-in (muograph_simt).
namespace muo::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;
using RankBody = std::function<void(RankContext&)>;

constexpr int kUnhandledCudaError = 1;

void on_ranks(ProcessGroup* processes, int world, int first_device, const RankBody& body) {
  const LoadedPlugin loaded = load_simt();
  if (loaded.plugin == nullptr) throw Error(loaded.missing);
  DeviceGroup({.world = world,
               .processes = processes,
               .plugin = loaded.plugin,
               .first_device = first_device,
               .communicator = CommunicatorKind::kNccl,
               .watch = {.stuck_after = std::chrono::minutes(1), .grace = patient_watch().grace}})
      .run(body);
}
// Each process uses the GPUs with its ranks' numbers, like the ranks of a single process.
void on_ranks(ProcessGroup& processes, const RankBody& body) {
  on_ranks(&processes, processes.world(), processes.ranks().first, body);
}

// Values of such different magnitudes that a sum in another order has other bits.
Floats values(int rank, std::int64_t n) {
  const std::int64_t r = rank;
  Floats out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(std::ldexp(1 + 0.37F * static_cast<float>(i) + 0.11F * static_cast<float>(r),
                             static_cast<int>((i + 3 * r) % 11)));
  return out;
}

struct Vectors {
  explicit Vectors(RankContext& rank)
      : counts({4, 0, 7, 1}),
        whole(rank, values(rank.rank, kWhole)),
        part(rank, values(rank.rank, counts[static_cast<std::size_t>(rank.rank)])),
        shard(rank, kSegment),
        sum(rank, kWhole),
        at_root(rank, kWhole),
        sent(rank, values(rank.rank, kWhole)),
        gathered(rank, kWhole),
        exchanged(rank, kWhole),
        parts(rank, 12),
        parts_at_root(rank, 12),
        back(rank, counts[static_cast<std::size_t>(rank.rank)]) {}

  static constexpr int kWorld = 4, kRoot = 2;
  static constexpr std::int64_t kSegment = 7, kWhole = kSegment * kWorld;

  // Enqueues every collective once.
  void enqueue(RankContext& rank) const {
    Communicator& c = rank.communicator;
    const bool is_root = rank.rank == kRoot;
    c.reduce_scatter(rank.comm, 1, shard, whole);
    c.all_reduce(rank.comm, 2, sum, whole);
    c.reduce(rank.comm, 3, is_root ? at_root.tensor() : Tensor{}, whole, kRoot);
    c.broadcast(rank.comm, 4, sent, kRoot);
    c.all_gather(rank.comm, 5, gathered, shard);
    c.all_to_all(rank.comm, 6, exchanged, whole);
    c.all_gather_v(rank.comm, 7, parts, part, counts);
    c.gather(rank.comm, 8, is_root ? parts_at_root.tensor() : Tensor{}, part, counts, kRoot);
    c.scatter(rank.comm, 9, back, is_root ? parts.tensor() : Tensor{}, counts, kRoot);
  }
  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    out << std::hexfloat;
    for (const DeviceVector<float>* vector :
         {&shard, &sum, &at_root, &sent, &gathered, &exchanged, &parts, &parts_at_root, &back}) {
      for (const float value : vector->get())
        out << value << ' ';
      out << '\n';
    }
    return out.str();
  }

  std::vector<std::int64_t> counts;
  DeviceVector<float> whole, part, shard, sum, at_root, sent, gathered, exchanged, parts,
      parts_at_root, back;
};

// By rank: results of all collectives, called eagerly and replayed.
class Results {
 public:
  void add(RankContext& rank) {
    std::string text;
    {
      const Vectors eager(rank), replayed(rank);
      const auto graph = rank.comm.capture([&] { replayed.enqueue(rank); });
      rank.barrier.arrive();  // no rank may make a graph while a peer's kernel waits
      eager.enqueue(rank);
      rank.comm.synchronize();
      for (int i = 0; i < 2; ++i)
        rank.comm.launch(*graph);
      rank.wait(rank.comm);
      EXPECT_EQ(replayed.text(), eager.text());
      text = eager.text();
      rank.barrier.arrive();  // nor free memory
    }
    const std::lock_guard lock(mutex_);
    by_rank_[rank.rank] = text;
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const auto& [rank, text] : by_rank_)
      all += concat("rank ", rank, "\n", text);
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> by_rank_;
};

class SimtNcclProcesses : public testing::TestWithParam<std::vector<int>> {};

TEST_P(SimtNcclProcesses, ComputeWhatOneComputes) {
  const std::vector<ProcessEnd> ends = in_processes(GetParam(), [](ProcessGroup& processes) {
    Results results;
    on_ranks(processes, [&](RankContext& rank) { results.add(rank); });
    return results.text();
  });
  Results expected;
  on_ranks(nullptr, Vectors::kWorld, 0, [&](RankContext& rank) { expected.add(rank); });
  std::string got;
  for (const ProcessEnd& end : ends) {
    EXPECT_EQ(end.code, 0) << end.said;
    got += end.said;
  }
  EXPECT_EQ(got, expected.text());
}
INSTANTIATE_TEST_SUITE_P(Splits, SimtNcclProcesses,
                         testing::Values(std::vector<int>{2, 2}, std::vector<int>{3, 1},
                                         std::vector<int>{1, 1, 2}));

std::vector<std::string> said_by(const std::vector<ProcessEnd>& ends) {
  std::vector<std::string> said;
  for (const ProcessEnd& end : ends) {
    EXPECT_EQ(end.code, 0);
    said.push_back(end.said);
  }
  return said;
}

TEST(SimtNcclProcess, ThatSharesAGpuWithAnotherIsRefusedInBoth) {
  const auto ends = in_processes({2, 2}, [](ProcessGroup& processes) {
    on_ranks(&processes, 4, processes.is_first() ? 0 : 1, [](RankContext& /*rank*/) {});
    return std::string();
  });
  EXPECT_THAT(
      said_by(ends),
      Each(AllOf(StartsWith("InputError: "),
                 HasSubstr("--comm nccl: ranks 1 and 2 share GPU "
                           "GPU-73696d74-0100-0000-0000-000000000000 of process 0 ("),
                 HasSubstr(" and process 1 (ranks 2 to 3"), HasSubstr("use a GPU for each rank"))));
}

// Fails while ranks of the other process wait for it.
TEST(SimtNcclProcess, ThatCannotJoinReleasesTheOther) {
  const auto ends = in_processes({2, 2}, [](ProcessGroup& processes) {
    if (!processes.is_first())
      loaded_nccl_stand_in().fail_next("ncclCommInitRankConfig", kUnhandledCudaError);
    on_ranks(processes, [](RankContext& /*rank*/) {});
    return std::string();
  });
  const auto said = said_by(ends);
  EXPECT_THAT(said, Each(AllOf(StartsWith("Error: "), HasSubstr("ncclCommInitRankConfig"))));
  EXPECT_THAT(said.front(), HasSubstr("process 1 ("));
}

TEST(SimtNcclProcess, ThatHasNoIdsReleasesTheOther) {
  const auto ends = in_processes({1, 1}, [](ProcessGroup& processes) {
    if (processes.is_first())
      loaded_nccl_stand_in().fail_next("ncclGetUniqueId", kUnhandledCudaError);
    on_ranks(processes, [](RankContext& /*rank*/) {});
    return std::string();
  });
  EXPECT_THAT(said_by(ends), Each(AllOf(StartsWith("Error: "), HasSubstr("ncclGetUniqueId"))));
}

class SimtKilledNcclProcess : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SimtKilledNcclProcess, testing::Values(1, 2));

// Killed while replays wait for a rank of the other process, whose end NCCL does not detect.
TEST_P(SimtKilledNcclProcess, EndsTheOther) {
  const std::vector<int> ranks = {2, 2};
  const auto ends = in_processes(ranks, [](ProcessGroup& processes) {
    on_ranks(processes, [&](RankContext& rank) {
      const Vectors vectors(rank);
      const auto graph = rank.comm.capture([&] { vectors.enqueue(rank); });
      rank.barrier.arrive([&] { processes.barrier(Channel::kRun, "test"); });
      if (rank.rank == GetParam()) ::kill(::getpid(), SIGKILL);
      rank.comm.launch(*graph);
      rank.wait(rank.comm);
    });
    return std::string();
  });
  const auto killed = static_cast<std::size_t>(GetParam() / 2);
  EXPECT_EQ(ends[killed].code, 128 + SIGKILL);
  const ProcessEnd& other = ends[1 - killed];
  EXPECT_EQ(other.code, 0);
  EXPECT_THAT(other.said,
              AllOf(StartsWith("Error: "), HasSubstr(concat("process ", killed, " ("))));
}

}  // namespace
}  // namespace muo::test
