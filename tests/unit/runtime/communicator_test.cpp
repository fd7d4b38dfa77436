#include "runtime/comm/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/device_group.h"
#include "runtime/host/host_communicator.h"
#include "runtime/host/host_device.h"
#include "support/errors.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::HostTensor;
using test::message_of;

double get(const Tensor& t, std::int64_t i) {
  switch (t.dtype) {
    case DType::kF32:
      return static_cast<double>(t.as<float>()[i]);
    case DType::kBF16:
      return static_cast<double>(to_f32(t.as<BF16>()[i]));
    case DType::kF64:
      return t.as<double>()[i];
    case DType::kI32:
      return t.as<std::int32_t>()[i];
    default:
      return static_cast<double>(t.as<std::int64_t>()[i]);
  }
}
void set(const Tensor& t, std::int64_t i, double value) {
  switch (t.dtype) {
    case DType::kF32:
      t.as<float>()[i] = static_cast<float>(value);
      break;
    case DType::kBF16:
      t.as<BF16>()[i] = to_bf16(static_cast<float>(value));
      break;
    case DType::kF64:
      t.as<double>()[i] = value;
      break;
    case DType::kI32:
      t.as<std::int32_t>()[i] = static_cast<std::int32_t>(1e6 * value);
      break;
    default:
      t.as<std::int64_t>()[i] = static_cast<std::int64_t>(1e12 * value);
  }
}

// Input of rank r, equal on all ranks, so that the reference needs no communication.
HostTensor input(int rank, std::int64_t size, DType dtype) {
  HostTensor out({size}, dtype, rank);
  const CounterRandom random(static_cast<std::uint64_t>(rank), "collective");
  for (std::int64_t i = 0; i < size; ++i)
    set(out, i, static_cast<double>(random.uniform(static_cast<std::uint64_t>(i))) - 0.5);
  return out;
}

// Compares `got` with elements [begin, ...) of the float64 sum of all ranks' inputs. Integers are
// exact; a float may differ by the roundings of its additions and of its store.
void expect_sums(const Tensor& got, int world, std::int64_t size, DType dtype, std::int64_t begin) {
  const bool integer = dtype == DType::kI32 || dtype == DType::kI64;
  const double sum_unit = dtype == DType::kF64 ? test::kUnitF64 : test::kUnitF32;
  const double store = got.dtype == DType::kBF16 ? test::kUnitBF16 : 0.0;
  std::vector<HostTensor> inputs;
  inputs.reserve(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r)
    inputs.push_back(input(r, size, dtype));
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    double sum = 0;
    double magnitude = 0;
    for (const HostTensor& in : inputs) {
      sum += get(in, begin + i);
      magnitude += std::abs(get(in, begin + i));
    }
    const double additions = test::worst_case(world - 1, sum_unit) * magnitude;
    const double allowed = integer ? 0.0 : additions + store * (std::abs(sum) + additions);
    ASSERT_LE(std::abs(get(got, i) - sum), allowed) << "element " << i << " of world " << world;
  }
}

constexpr int kWorlds[] = {1, 2, 3, 4, 5};
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF64, DType::kI32, DType::kI64};
constexpr std::int64_t kSizes[] = {1, 2, 1031, 2053};  // less than the world, more than a block

TEST(HostCommunicator, SumsAgreeWithAFloat64Reference) {
  for (const int world : kWorlds)
    for (const DType dtype : kDTypes)
      for (const std::int64_t size : kSizes) {
        DeviceGroup group({.world = world});
        group.run([&](RankContext& rank) {
          Communicator& c = rank.communicator;
          const int root = world - 1;
          const HostTensor in = input(rank.rank, size, dtype);
          const HostTensor whole = input(rank.rank, size * world, dtype);
          const HostTensor sum({size}, dtype);
          const HostTensor in_place = input(rank.rank, size, dtype);
          const HostTensor at_root({size}, dtype);
          const HostTensor shard({size}, dtype);
          c.all_reduce(rank.comm, 1, sum, in);
          c.all_reduce(rank.comm, 2, in_place, in_place);
          c.reduce(rank.comm, 3, rank.rank == root ? at_root.tensor() : Tensor{}, in, root);
          c.reduce_scatter(rank.comm, 4, shard, whole);
          expect_sums(sum, world, size, dtype, 0);
          expect_sums(in_place, world, size, dtype, 0);
          if (rank.rank == root) expect_sums(at_root, world, size, dtype, 0);
          expect_sums(shard, world, size * world, dtype, rank.rank * size);
          if (dtype == DType::kBF16) {
            const HostTensor wide({size});
            c.reduce_scatter(rank.comm, 5, wide, whole);
            expect_sums(wide, world, size * world, dtype, rank.rank * size);
          }
        });
      }
}

TEST(HostCommunicator, RanksGetBitwiseEqualSums) {
  constexpr int kWorld = 3;
  constexpr std::int64_t kSize = 1031;
  std::vector<std::vector<float>> sums(kWorld);
  DeviceGroup group({.world = kWorld});
  group.run([&](RankContext& rank) {
    const HostTensor in = input(rank.rank, kSize, DType::kF32);
    const HostTensor sum({kSize});
    rank.communicator.all_reduce(rank.comm, 1, sum, in);
    sums[static_cast<std::size_t>(rank.rank)] = {sum.values().begin(), sum.values().end()};
  });
  std::vector<float> expected(kSize, 0.0F);
  for (int r = 0; r < kWorld; ++r) {
    const HostTensor in = input(r, kSize, DType::kF32);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] += in.values()[i];  // rank order
  }
  for (const auto& of_rank : sums)
    EXPECT_EQ(of_rank, expected);
}

TEST(HostCommunicator, MovesEveryDTypeUnchanged) {
  for (const int world : kWorlds)
    for (const std::int64_t size : kSizes) {
      DeviceGroup group({.world = world});
      group.run([&](RankContext& rank) {
        Communicator& c = rank.communicator;
        std::vector<std::int64_t> counts;
        std::int64_t total = 0;
        std::int64_t begin = 0;
        for (int r = 0; r < world; ++r) {
          if (r == rank.rank) begin = total;
          counts.push_back(r == 1 ? 0 : size + r);
          total += counts.back();
        }
        const std::int64_t mine = counts[static_cast<std::size_t>(rank.rank)];
        const int root = world / 2;
        // Element i of the whole is based on i, as 64-bit integers that no float can represent.
        constexpr std::int64_t kLarge = (std::int64_t{1} << 60) + 1;
        const HostTensor part({mine}, DType::kI64);
        const HostTensor everywhere({total}, DType::kI64);
        const HostTensor at_root({total}, DType::kI64);
        const HostTensor back({mine}, DType::kI64);
        for (std::int64_t i = 0; i < mine; ++i)
          part.tensor().as<std::int64_t>()[i] = kLarge + begin + i;
        const Tensor full = rank.rank == root ? at_root.tensor() : Tensor{};
        c.all_gather_v(rank.comm, 1, everywhere, part, counts);
        c.gather(rank.comm, 2, full, part, counts, root);
        c.scatter(rank.comm, 3, back, full, counts, root);
        c.broadcast(rank.comm, 4, at_root, root);
        for (std::int64_t i = 0; i < total; ++i) {
          ASSERT_EQ(everywhere.values<std::int64_t>()[static_cast<std::size_t>(i)], kLarge + i);
          ASSERT_EQ(at_root.values<std::int64_t>()[static_cast<std::size_t>(i)], kLarge + i);
        }
        for (std::int64_t i = 0; i < mine; ++i)
          ASSERT_EQ(back.values<std::int64_t>()[static_cast<std::size_t>(i)], kLarge + begin + i);

        const HostTensor bytes({size * world}, DType::kBytes);
        const HostTensor exchanged({size * world}, DType::kBytes);
        const auto byte = [&](int from, int to, std::int64_t i) {
          return static_cast<std::byte>(from * 31 + to * 7 + i);
        };
        for (int to = 0; to < world; ++to)
          for (std::int64_t i = 0; i < size; ++i)
            bytes.tensor().data[to * size + i] = byte(rank.rank, to, i);
        c.all_to_all(rank.comm, 5, exchanged, bytes);
        for (int from = 0; from < world; ++from)
          for (std::int64_t i = 0; i < size; ++i)
            ASSERT_EQ(exchanged.tensor().data[from * size + i], byte(from, rank.rank, i));
        EXPECT_THROW(c.all_reduce(rank.comm, 6, bytes, bytes), Error);
      });
    }
}

TEST(HostCommunicator, CountsWhatCrossesTheWire) {
  constexpr std::int64_t kSegment = 5;
  for (const int world : kWorlds) {
    DeviceGroup group({.world = world});
    group.run([&](RankContext& rank) {
      Communicator& c = rank.communicator;
      const HostTensor full({kSegment * world});
      const HostTensor other({kSegment * world});
      const HostTensor shard({kSegment});
      const std::int64_t bytes = full.tensor().bytes();
      const bool is_root = rank.rank == 0;
      const Tensor at_root = is_root ? full.tensor() : Tensor{};
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(world), kSegment);
      const std::int64_t most = bytes * (world - 1) / world;
      const std::int64_t owner = world == 1 ? 0 : is_root ? most : bytes / world;
      std::int64_t before = 0;
      const auto sent = [&] {
        const std::int64_t now = c.bytes_sent();
        return now - std::exchange(before, now);
      };
      c.reduce_scatter(rank.comm, 1, shard, full);
      EXPECT_EQ(sent(), most);
      c.all_gather(rank.comm, 2, full, shard);
      EXPECT_EQ(sent(), most);
      c.all_gather_v(rank.comm, 3, full, shard, counts);
      EXPECT_EQ(sent(), most);
      c.all_reduce(rank.comm, 4, full, full);
      EXPECT_EQ(sent(), 2 * most);
      c.all_to_all(rank.comm, 5, other, full);
      EXPECT_EQ(sent(), most);
      c.gather(rank.comm, 6, at_root, shard, counts, 0);
      EXPECT_EQ(sent(), owner);
      c.scatter(rank.comm, 7, shard, at_root, counts, 0);
      EXPECT_EQ(sent(), owner);
      c.broadcast(rank.comm, 8, full, 0);
      EXPECT_EQ(sent(), world == 1 ? 0 : bytes);
      c.reduce(rank.comm, 9, is_root ? other.tensor() : Tensor{}, full, 0);
      EXPECT_EQ(sent(), world == 1 ? 0 : bytes);
      const auto graph = rank.comm.capture([&] { c.all_reduce(rank.comm, 10, full, full); });
      EXPECT_EQ(sent(), 0);  // a capture sends nothing
      rank.comm.launch(*graph);
      EXPECT_EQ(sent(), 2 * most);
    });
  }
}

// A call of one rank that differs from its peers'.
struct Mispairing {
  const char* expected;  // in the message of every rank
  void (*enqueue)(RankContext& rank, bool differs);
};
constexpr int kOdd = 2;
constexpr Mispairing kMispairings[] = {
    {"tag",
     [](RankContext& rank, bool differs) {
       const HostTensor t({12});
       rank.communicator.all_reduce(rank.comm, differs ? 8 : 7, t, t);
     }},
    {"12 fp32",
     [](RankContext& rank, bool differs) {
       const HostTensor t({differs ? 13 : 12});
       rank.communicator.all_reduce(rank.comm, 7, t, t);
     }},
    {"12 fp32",
     [](RankContext& rank, bool differs) {
       const HostTensor t({12}, differs ? DType::kI32 : DType::kF32);
       rank.communicator.all_reduce(rank.comm, 7, t, t);
     }},
    {"into",
     [](RankContext& rank, bool differs) {
       const HostTensor full({12}, DType::kBF16);
       const HostTensor shard({3}, differs ? DType::kBF16 : DType::kF32);
       rank.communicator.reduce_scatter(rank.comm, 7, shard, full);
     }},
    {"root 1",
     [](RankContext& rank, bool differs) {
       const HostTensor t({12});
       rank.communicator.broadcast(rank.comm, 7, t, differs ? 1 : 0);
     }},
    {"parts of",
     [](RankContext& rank, bool differs) {  // equal sums and own parts, different peers' parts
       const std::vector<std::int64_t> counts =
           differs ? std::vector<std::int64_t>{2, 4, 3, 3} : std::vector<std::int64_t>{3, 3, 3, 3};
       const HostTensor full({12});
       const HostTensor part({3});
       rank.communicator.all_gather_v(rank.comm, 7, full, part, counts);
     }},
    {"all_gather",
     [](RankContext& rank, bool differs) {  // in another order
       const HostTensor full({12});
       const HostTensor shard({3});
       for (const bool first : {true, false})
         if (first != differs)
           rank.communicator.reduce_scatter(rank.comm, 7, shard, full);
         else
           rank.communicator.all_gather(rank.comm, 7, full, shard);
     }},
};

void expect_noticed(const Mispairing& mispairing, bool planted) {
  constexpr int kWorld = 4;
  std::atomic<int> errors = 0;
  DeviceGroup group({.world = kWorld});
  const auto enter = [&](RankContext& rank) {
    const std::string own =
        message_of<Error>([&] { mispairing.enqueue(rank, planted && rank.rank == kOdd); });
    if (own == "no exception") return;
    ++errors;
    EXPECT_NE(own.find("mispaired"), std::string::npos) << own;
    EXPECT_NE(own.find(mispairing.expected), std::string::npos) << own;
    EXPECT_NE(own.find("rank 2 enters"), std::string::npos) << own;
    throw Error(own);
  };
  const auto start = std::chrono::steady_clock::now();
  const std::string message = message_of<Error>([&] { group.run(enter); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(errors, planted ? kWorld : 0);
  EXPECT_EQ(message != "no exception", planted);
}

TEST(HostCommunicator, AMispairedCollectiveIsAnErrorOnEveryRank) {
  for (const Mispairing& mispairing : kMispairings) {
    SCOPED_TRACE(mispairing.expected);
    expect_noticed(mispairing, /*planted=*/false);
    expect_noticed(mispairing, /*planted=*/true);
  }
}

// Rank 0 overwrites its buffer as soon as its all-gather has returned, while rank 1 reads it
// slowly. Returns the value that rank 1 received.
float slow_reader(bool skip_exit_barrier) {
  Rendezvous rendezvous(2);
  std::atomic<bool> overwritten = false;
  HostCommunicatorGroup group(
      2, rendezvous, {.skip_exit_barrier = skip_exit_barrier, .before_reading = [&](int rank) {
                        if (rank == 0) return;
                        // With the barrier nothing is overwritten: rank 1 reads after some time.
                        const auto limit =
                            std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
                        while (!overwritten && std::chrono::steady_clock::now() < limit)
                          std::this_thread::yield();
                      }});
  std::vector<HostTensor> in;
  std::vector<HostTensor> out;
  for (int rank = 0; rank < 2; ++rank) {
    in.push_back(HostTensor({2}, std::vector<float>{10, 20}));
    out.emplace_back(Shape{1});
  }
  const auto body = [&](int rank) {
    HostDevice device(rank);
    const auto stream = device.make_stream(StreamPriority::kNormal);
    const auto communicator = make_host_communicator(group, rank);
    const auto r = static_cast<std::size_t>(rank);
    communicator->reduce_scatter(*stream, 1, out[r], in[r]);
    if (rank == 0) {
      in[0].values()[1] = -1000;
      overwritten = true;
    }
  };
  {
    const std::jthread zero(body, 0);
    const std::jthread one(body, 1);
  }
  return out[1].values()[0];
}

TEST(HostCommunicator, AMissingExitBarrierIsAWrongSum) {
  EXPECT_EQ(slow_reader(false), 40.0F);
  EXPECT_EQ(slow_reader(true), -980.0F);
}

TEST(BF16, RoundsToNearestEven) {
  EXPECT_EQ(to_f32(to_bf16(1.0F + 0x1p-8F)), 1.0F);                // a tie, to even
  EXPECT_EQ(to_f32(to_bf16(1.0F + 3 * 0x1p-8F)), 1.0F + 0x1p-6F);  // a tie, to even
  EXPECT_EQ(to_f32(to_bf16(1.0F + 0x1.002p-8F)), 1.0F + 0x1p-7F);  // above the tie
  EXPECT_EQ(to_f32(to_bf16(0x1.FFp127F)), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::signbit(to_f32(to_bf16(-0.0F))));
}

}  // namespace
}  // namespace muo
