// The peer communicator on the backend of tests/emulator, whose kernels run on the ranks' threads.
// Requirements on all communicators are tested in tests/contract.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "base/check.h"
#include "runtime/device_group.h"
#include "support/environment.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/sanitized.h"

namespace muo {
namespace {

using test::message_of;
using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

GroupOptions on_peers(int world) {
  const LoadedPlugin loaded = test::load_simt();
  if (loaded.plugin == nullptr) throw Error(loaded.missing);
  return {.world = world,
          .plugin = loaded.plugin,
          .communicator = CommunicatorKind::kPeer,
          .watch = test::patient_watch()};
}
GroupOptions on_host(int world) { return {.world = world}; }

// Memory of a rank with random contents: any bits for integers, moderate numbers for floats. The
// view begins `skew` elements into it, and the memory around it must not change.
class Skewed {
 public:
  Skewed(RankContext& rank, DType dtype, std::int64_t size, std::int64_t skew, int seed)
      : tensor_{nullptr, {size}, dtype, rank.rank},
        buffer_(rank.device.allocate((size + skew + 8) * size_of(dtype), "a test's vector")) {
    tensor_.data = buffer_->data() + skew * size_of(dtype);
    std::mt19937 random(static_cast<unsigned>(1000 * seed + rank.rank));
    std::byte* data = buffer_->data();
    for (std::int64_t i = 0; i < size + skew + 8; ++i) {
      const float x = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random),
                                 static_cast<int>(random() % 12));
      switch (dtype) {
        case DType::kF32:
          reinterpret_cast<float*>(data)[i] = x;
          break;
        case DType::kBF16:
          reinterpret_cast<BF16*>(data)[i] = to_bf16(x);
          break;
        case DType::kF64:
          reinterpret_cast<double*>(data)[i] = static_cast<double>(x) / 3;
          break;
        default:
          for (std::int64_t b = 0; b < size_of(dtype); ++b)
            data[i * size_of(dtype) + b] = static_cast<std::byte>(random());
      }
    }
  }
  operator Tensor() const { return tensor_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] Tensor elements(std::int64_t begin, std::int64_t count) const {
    return tensor_.elements(begin, count);
  }
  // Device memory of both backends is host memory.
  void append_to(Bytes& out) const {
    out.insert(out.end(), buffer_->data(), buffer_->data() + buffer_->bytes());
  }

 private:
  Tensor tensor_;
  std::unique_ptr<Buffer> buffer_;
};

struct Case {
  int world;
  DType dtype;
  std::int64_t size;  // elements of a segment
  bool odd;           // unaligned addresses, different on every rank
};

// All results of every collective in this rank's memory, as bytes.
Bytes results(RankContext& rank, const Case& c) {
  const int r = rank.rank;
  const std::int64_t whole = c.size * c.world;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(c.world));
  for (std::size_t p = 0; p < counts.size(); ++p)
    counts[p] = p == 1 ? 0 : c.size + 3 * static_cast<std::int64_t>(p);
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t own = counts[static_cast<std::size_t>(r)];
  const std::int64_t begin = std::accumulate(counts.begin(), counts.begin() + r, std::int64_t{0});
  const int root = c.world / 2;
  int made = 0;
  std::vector<std::unique_ptr<Skewed>> all;
  const auto make = [&](std::int64_t size, DType dtype) -> Skewed& {
    ++made;
    const std::int64_t skew = c.odd ? (5 * made + 3 * r) % 8 : 0;
    all.push_back(std::make_unique<Skewed>(rank, dtype, size, skew, made));
    return *all.back();
  };
  const auto at_root = [&](const Skewed& t) { return r == root ? Tensor(t) : Tensor{}; };
  Communicator& comm = rank.communicator;
  Stream& stream = rank.comm;
  const Skewed& in = make(whole, c.dtype);
  const Skewed& part = make(own, c.dtype);
  if (c.dtype != DType::kBytes) {
    comm.reduce_scatter(stream, 1, make(c.size, c.dtype), in);
    comm.all_reduce(stream, 2, make(whole, c.dtype), in);
    const Skewed& in_place = make(whole, c.dtype);
    comm.all_reduce(stream, 3, in_place, in_place);
    comm.reduce(stream, 4, at_root(make(whole, c.dtype)), in, root);
  }
  if (c.dtype == DType::kBF16) {
    comm.reduce_scatter(stream, 5, make(c.size, DType::kF32), in);
    comm.reduce(stream, 6, at_root(make(whole, DType::kF32)), in, root);
  }
  comm.all_gather(stream, 7, make(whole, c.dtype), in.elements(0, c.size));
  const Skewed& own_place = make(whole, c.dtype);
  comm.all_gather(stream, 8, own_place, own_place.elements(r * c.size, c.size));
  comm.all_gather_v(stream, 9, make(total, c.dtype), part, counts);
  const Skewed& own_part = make(total, c.dtype);
  comm.all_gather_v(stream, 10, own_part, own_part.elements(begin, own), counts);
  comm.broadcast(stream, 11, make(whole, c.dtype), root);
  comm.gather(stream, 12, at_root(make(total, c.dtype)), part, counts, root);
  comm.scatter(stream, 13, make(own, c.dtype), at_root(make(total, c.dtype)), counts, root);
  comm.all_to_all(stream, 14, make(whole, c.dtype), in);
  stream.synchronize();
  comm.check();
  Bytes out;
  for (const auto& one : all)
    one->append_to(out);
  const std::int64_t sent = comm.bytes_sent();
  const auto* raw = reinterpret_cast<const std::byte*>(&sent);
  out.insert(out.end(), raw, raw + sizeof sent);
  return out;
}

std::vector<Bytes> results_of_all(const GroupOptions& options, const Case& c) {
  std::vector<Bytes> out(static_cast<std::size_t>(c.world));
  DeviceGroup group(options);
  group.run([&](RankContext& rank) {
    out[static_cast<std::size_t>(rank.rank)] = results(rank, c);
    rank.barrier.arrive();  // memory stays until all ranks are done
  });
  return out;
}

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF64,
                             DType::kI32, DType::kI64,  DType::kBytes};

void expect_as_host(const Case& c) {
  EXPECT_TRUE(results_of_all(on_host(c.world), c) == results_of_all(on_peers(c.world), c))
      << "world " << c.world << ", " << c.size << " " << name_of(c.dtype)
      << (c.odd ? " at odd addresses" : "");
}

TEST(SimtPeerCommunicator, GivesTheBitsThatTheHostsGives) {
  for (const int world : test::kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 4, 8})
    for (const DType dtype : kDTypes)
      for (const std::int64_t size : {1, 16, 1031})
        for (const bool odd : {false, true})
          expect_as_host({world, dtype, size, odd});
}

// Enough elements for several CTAs per rank, the last of which has less or nothing to do.
TEST(SimtPeerCommunicator, GivesTheSameBitsWithManyCtas) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool odd : {false, true})
      expect_as_host({3, dtype, 23333, odd});
  expect_as_host({8, DType::kBF16, 8751, true});
}

// Replays that each add to the results of the previous one, so that one stale or early read changes
// all later results. Eager collectives in between continue with the same epochs.
std::vector<Bytes> replays(const GroupOptions& options, int count) {
  std::vector<Bytes> out(static_cast<std::size_t>(options.world));
  DeviceGroup group(options);
  group.run([&](RankContext& rank) {
    const std::int64_t segment = 37;
    const std::int64_t size = segment * options.world;
    const Skewed x(rank, DType::kI32, size, 1, 1);
    const Skewed y(rank, DType::kI32, size, 2, 2);
    const Skewed shard(rank, DType::kI32, segment, 3, 3);
    const Skewed fresh(rank, DType::kI32, count, 0, 4);
    Communicator& c = rank.communicator;
    const auto graph = rank.comm.capture([&] {
      c.all_reduce(rank.comm, 1, x, x);
      c.all_to_all(rank.comm, 2, y, x);
      c.reduce_scatter(rank.comm, 3, shard, y);
      c.all_gather(rank.comm, 4, x, shard);
      c.reduce(rank.comm, 5, rank.rank == 0 ? Tensor(y) : Tensor{}, x, 0);
      c.broadcast(rank.comm, 6, y, 0);
      c.all_to_all(rank.comm, 7, x, y);
      c.all_reduce(rank.comm, 8, x.elements(0, 5), x.elements(0, 5));
    });
    rank.barrier.arrive();
    for (int i = 0; i < count; ++i) {
      for (const std::int64_t place : {3, 20})
        rank.comm.copy(x.elements(rank.rank * segment + place, 1), fresh.elements(i, 1));
      rank.comm.launch(*graph);
      if (i % 7 == 0) c.all_to_all(rank.comm, 9, y, x);
    }
    rank.comm.synchronize();
    c.check();
    for (const Skewed* one : {&x, &y, &shard})
      one->append_to(out[static_cast<std::size_t>(rank.rank)]);
    rank.barrier.arrive();
  });
  return out;
}

TEST(SimtPeerCommunicator, ReplaysNeedNoHostAndGoOnWhereTheLastOneEnded) {
  for (const int world : {1, 2, 3, 4}) {
    const auto got = replays(on_peers(world), 50);
    EXPECT_TRUE(got == replays(on_host(world), 50)) << "world " << world;
    EXPECT_TRUE(got != replays(on_host(world), 49)) << "world " << world;
  }
}

// Kernels of ranks run at different times, so that one is often a barrier ahead.
TEST(SimtPeerCommunicator, SlowRanksChangeNothing) {
  constexpr int kWorld = 3;
  const auto run = [&](const GroupOptions& options) {
    std::vector<Bytes> out(kWorld);
    DeviceGroup group(options);
    group.run([&](RankContext& rank) {
      const Skewed x(rank, DType::kI32, 600, 0, 1);
      const auto graph = rank.comm.capture([&] {
        rank.communicator.all_reduce(rank.comm, 1, x, x);
        rank.communicator.all_gather(rank.comm, 2, x,
                                     x.elements(std::int64_t{200} * rank.rank, 200));
      });
      rank.barrier.arrive();
      std::mt19937 random(static_cast<unsigned>(rank.rank));
      for (int i = 0; i < 40; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        rank.comm.launch(*graph);
      }
      rank.comm.synchronize();
      x.append_to(out[static_cast<std::size_t>(rank.rank)]);
      rank.barrier.arrive();
    });
    return out;
  };
  EXPECT_EQ(run(on_peers(kWorld)), run(on_host(kWorld)));
}

// Sets the ranks' deadline for groups that are made while it exists.
class Deadline : test::ScopedEnvironment {
 public:
  explicit Deadline(const char* ms) : ScopedEnvironment("MUO_PEER_DEADLINE_MS", ms) {}
};

constexpr int kWorld = 3;
constexpr int kOdd = 2;

void replay(Stream& stream, Graph& graph) {
  stream.launch(graph);
  stream.synchronize();
}

// One rank throws while the others' kernels wait for it.
void expect_release(std::int64_t size) {
  const auto start = Clock::now();
  std::atomic<int> released = 0;
  std::atomic<int> waiting = 0;
  const std::string message = message_of<Error>([&] {
    DeviceGroup group(on_peers(kWorld));
    group.run([&](RankContext& rank) {
      const Skewed x(rank, DType::kF32, size, 0, 1);
      const auto graph =
          rank.comm.capture([&] { rank.communicator.all_reduce(rank.comm, 7, x, x); });
      if (rank.rank == kOdd) {
        EXPECT_TRUE(test::eventually([&] { return waiting == kWorld - 1; }));
        throw Error("out of paper");
      }
      rank.comm.launch(*graph);
      ++waiting;
      rank.comm.synchronize();
      const std::int64_t sent = rank.communicator.bytes_sent();
      replay(rank.comm, *graph);  // returns immediately
      const std::string own = message_of<PeerFailed>([&] { rank.communicator.check(); });
      // It saw the abort word, or kLeft of the other rank that did.
      EXPECT_TRUE(own.find("a peer failed while rank") != std::string::npos ||
                  own.find("left all_reduce") != std::string::npos)
          << own;
      EXPECT_NE(own.find("all_reduce with tag 7"), std::string::npos) << own;
      const std::string next =
          message_of<PeerFailed>([&] { rank.communicator.all_reduce(rank.comm, 8, x, x); });
      EXPECT_NE(next, "no exception");
      EXPECT_EQ(sent, 0);
      ++released;
      rank.communicator.check();
    });
  });
  EXPECT_EQ(message, "rank 2: out of paper");
  EXPECT_EQ(released, kWorld - 1);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

TEST(SimtPeerCommunicator, ARankThatFailsReleasesTheKernelsThatWaitForIt) {
  for (const std::int64_t size : {8, 100'000})  // one CTA; eight CTAs
    expect_release(size);
}

// One rank neither arrives nor fails; it arrives after the others have timed out.
TEST(SimtPeerCommunicator, ARankThatNeverComesIsNamedAfterTheDeadline) {
  const Deadline deadline("1000");
  const auto start = Clock::now();
  std::atomic<int> late = 0;
  DeviceGroup group(on_peers(kWorld));
  group.run([&](RankContext& rank) {
    const Skewed x(rank, DType::kF32, 8, 0, 1);
    const auto graph = rank.comm.capture([&] { rank.communicator.all_reduce(rank.comm, 7, x, x); });
    rank.barrier.arrive();
    if (rank.rank != kOdd) {
      replay(rank.comm, *graph);
      const auto gave_up = Clock::now();
      EXPECT_GE(gave_up - start, std::chrono::milliseconds(1000));
      replay(rank.comm, *graph);  // returns immediately
      EXPECT_LT(Clock::now() - gave_up, std::chrono::milliseconds(900));
      const std::string own = message_of<Error>([&] { rank.communicator.check(); });
      EXPECT_NE(own.find(concat("rank ", rank.rank,
                                " waited 1000 ms in all_reduce with tag 7 for "
                                "rank 2, which did not arrive")),
                std::string::npos)
          << own;
      ++late;
    } else {
      while (late < kWorld - 1)
        std::this_thread::yield();
      replay(rank.comm, *graph);
      const std::string own = message_of<PeerFailed>([&] { rank.communicator.check(); });
      EXPECT_NE(own.find("left all_reduce with tag 7"), std::string::npos) << own;
    }
    rank.barrier.arrive();
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

// The rank whose kernel timed out is stopped before check(), as the others have seen it leave.
TEST(SimtPeerCommunicator, TheDeadlineOfARankThatIsStoppedIsTheCauseAllTheSame) {
  const Deadline deadline("500");
  std::atomic<int> gone = 0;
  const std::string message = message_of<Error>([&] {
    DeviceGroup group(on_peers(2));
    group.run([&](RankContext& rank) {
      const Skewed x(rank, DType::kF32, 8, 0, 1);
      const auto graph =
          rank.comm.capture([&] { rank.communicator.all_reduce(rank.comm, 7, x, x); });
      if (rank.rank == 0) {
        replay(rank.comm, *graph);
        ++gone;
        while (gone < 2)
          std::this_thread::yield();
        throw PeerFailed("a peer failed");  // like a stopped rank
      }
      while (gone < 1)
        std::this_thread::yield();
      replay(rank.comm, *graph);
      ++gone;
      rank.communicator.check();
    });
  });
  EXPECT_TRUE(message.starts_with("rank 0: ")) << message;
  EXPECT_NE(message.find("rank 0 waited 500 ms in all_reduce with tag 7 for rank 1"),
            std::string::npos)
      << message;
}

TEST(SimtPeerCommunicator, TwoCollectivesOfARankAtOnceAreAnError) {
  const Deadline deadline("2000");
  std::atomic<bool> done = false;
  DeviceGroup group(on_peers(2));
  group.run([&](RankContext& rank) {
    const Skewed x(rank, DType::kF32, 8, 0, 1);
    const auto one = rank.comm.capture([&] { rank.communicator.all_reduce(rank.comm, 1, x, x); });
    const auto two =
        rank.update.capture([&] { rank.communicator.all_reduce(rank.update, 2, x, x); });
    if (rank.rank == 0) {
      rank.comm.launch(*one);
      rank.update.launch(*two);
      rank.comm.synchronize();
      rank.update.synchronize();
      const std::string own = message_of<Error>([&] { rank.communicator.check(); });
      EXPECT_NE(own.find("rank 0 runs two collectives at once"), std::string::npos) << own;
      done = true;
    }
    while (!done)
      std::this_thread::yield();
  });
}

TEST(SimtPeerCommunicator, AMispairedCollectiveIsAnErrorOnEveryRankBeforeItRuns) {
  const auto message_on = [](const GroupOptions& options) {
    std::atomic<int> errors = 0;
    const std::string message = message_of<Error>([&] {
      DeviceGroup group(options);
      group.run([&](RankContext& rank) {
        const Skewed x(rank, DType::kF32, 9, 0, 1);
        const Skewed y(rank, DType::kF32, 3, 0, 1);
        rank.communicator.all_reduce(rank.comm, 1, x, x);
        try {
          if (rank.rank == kOdd)
            rank.communicator.all_gather(rank.comm, 2, x, y);
          else
            rank.communicator.reduce_scatter(rank.comm, 2, y, x);
        } catch (const Error&) {
          ++errors;
          throw;
        }
      });
    });
    EXPECT_EQ(errors, kWorld);
    return message.substr(message.find(": ") + 2);  // the first rank may be any
  };
  const std::string message = message_on(on_peers(kWorld));
  EXPECT_EQ(message, message_on(on_host(kWorld)));
  EXPECT_NE(message.find("mispaired: rank 0 enters reduce_scatter with tag 2"), std::string::npos)
      << message;
}

TEST(SimtPeerCommunicator, SaysWhatItCannotServe) {
  EXPECT_THROW(DeviceGroup group(on_peers(17)), InputError);
  const Deadline deadline("soon");
  EXPECT_THROW(DeviceGroup group(on_peers(2)), InputError);
}

}  // namespace
}  // namespace muo
