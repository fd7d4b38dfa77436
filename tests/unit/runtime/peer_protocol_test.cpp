// The peer communicator's protocol in every possible order of its steps. The steps are obtained by
// running the kernel's own code: take_part(), and share_work() for the data.

#include "runtime/comm/peer_protocol.h"

#include <gtest/gtest.h>

#include "runtime/comm/peer_work.h"
#include "unit/runtime/peer_model.h"

namespace muo {
namespace {

using test::Agent;
using test::Step;
using test::Verdict;

// Faults to plant: what is omitted or weakened, and at which barrier.
enum class Barrier : std::uint8_t { kNone, kEntry, kMiddle, kExit };
struct Planted {
  const char* name = "nothing";
  Barrier missing = Barrier::kNone;
  Barrier relaxed_signal = Barrier::kNone;
  Barrier relaxed_wait = Barrier::kNone;
  bool same_epochs = false;
};

// A place is a block of 16 elements, the unit of slices and shares. Every rank has vectors `x`, `y`
// and `z` with one block per CTA of each rank.
constexpr std::int64_t kBlock = 16;

struct Model {
  int world;
  int ctas;

  [[nodiscard]] int blocks() const { return world * ctas; }  // per vector
  [[nodiscard]] int place(int rank, int vector, int block) const {
    return (rank * 3 + vector) * blocks() + block;
  }
  [[nodiscard]] int first_flag() const { return world * 3 * blocks(); }
  // Flag written by CTA c of `from`, read by CTA c of `to`.
  [[nodiscard]] int flag(int from, int to, int c) const {
    return first_flag() + (from * (world - 1) + (to > from ? to - 1 : to)) * ctas + c;
  }
  [[nodiscard]] int places() const { return first_flag() + world * (world - 1) * ctas; }
  // Never accessed; only its address is used.
  [[nodiscard]] Tensor tensor(int rank, int vector) const {
    return {memory + std::ptrdiff_t{place(rank, vector, 0)} * kBlockBytes,
            {blocks() * kBlock},
            DType::kF32,
            rank};
  }
  static int place_of(const std::byte* address) {
    return static_cast<int>((address - memory) / kBlockBytes);
  }

  static constexpr std::ptrdiff_t kBlockBytes = kBlock * 4;
  static inline std::byte memory[test::kMaxPlaces * kBlockBytes];
};

// A collective, with its number of CTAs.
struct Call {
  CollectiveKind kind;
  int ctas;
};

std::vector<Collective> posts(const Model& model, CollectiveKind kind) {
  std::vector<Collective> out;
  for (int r = 0; r < model.world; ++r) {
    const Tensor x = model.tensor(r, 0);
    const Tensor y = model.tensor(r, 1);
    const std::int64_t own = model.ctas * kBlock;
    Collective c{.kind = kind, .count = x.numel()};
    switch (kind) {
      case CollectiveKind::kAllReduce:  // in place
        c.out = c.in = x;
        break;
      case CollectiveKind::kAllGather:
        c.out = y;
        c.in = x.elements(r * own, own);
        break;
      case CollectiveKind::kReduce:  // into the root's memory
        c.root = 0;
        c.in = y;
        if (r == 0) c.out = model.tensor(0, 2);
        break;
      case CollectiveKind::kBroadcast:
        c.root = 1;
        (r == 1 ? c.in : c.out) = x;
        break;
      default:
        ADD_FAILURE() << "no such call in the model";
    }
    out.push_back(c);
  }
  return out;
}

// Implements the CTA interface of take_part(), and records the steps.
class Recorder {
 public:
  Recorder(const peer::Work& work, int c, peer::Epoch& epoch, const Planted& planted,
           std::vector<Step>& steps)
      : work_(work), c_(c), epoch_(epoch), planted_(planted), steps_(steps) {}

  [[nodiscard]] peer::Epoch epoch() const { return planted_.same_epochs ? 0 : epoch_; }
  static bool start() { return true; }
  static void sync() {}
  void signal(peer::Epoch epoch) {
    ++barrier_;
    if (planted_.missing == at()) return;
    lanes().push_back({test::Signal::Kind::kSignal, static_cast<std::uint8_t>(epoch),
                       planted_.relaxed_signal != at()});
  }
  bool wait(peer::Epoch epoch) {
    if (planted_.missing != at())
      lanes().push_back({test::Signal::Kind::kWait, static_cast<std::uint8_t>(epoch),
                         planted_.relaxed_wait != at()});
    together_ = false;
    return true;
  }
  void sum() {
    const peer::Slice slice = peer::slice_of(work_.sum_count, c_, work_.ctas);
    for (std::int64_t i = slice.begin; i < slice.end; i += kBlock) {
      Step step = move(work_.sum_out + i * 4);
      for (int p = 0; p < work_.world; ++p)
        step.from.push_back(place(work_.sum_in[p] + i * 4));
      steps_.push_back(step);
    }
  }
  [[nodiscard]] bool has_middle() const { return work_.middle; }
  void copy() {
    copied_ = true;
    for (int k = 0; k < work_.copies; ++k) {
      const peer::Copy& one = work_.copy[k];
      const peer::Slice slice = peer::slice_of(one.count, c_, work_.ctas);
      for (std::int64_t i = slice.begin; i < slice.end; i += kBlock) {
        Step step = move(one.to + i * 4);
        step.from.push_back(place(one.from + i * 4));
        steps_.push_back(step);
      }
    }
  }
  void finish(peer::Epoch epoch) { epoch_ = epoch; }

 private:
  [[nodiscard]] Barrier at() const {
    return barrier_ == 1 ? Barrier::kEntry : copied_ ? Barrier::kExit : Barrier::kMiddle;
  }
  std::vector<test::Signal>& lanes() {  // signals and waits until the next sync are one step
    if (!together_) steps_.push_back({.kind = Step::Kind::kLanes});
    together_ = true;
    return steps_.back().signals;
  }
  static std::uint8_t place(const std::byte* address) {
    return static_cast<std::uint8_t>(Model::place_of(address));
  }
  static Step move(const std::byte* to) { return {.kind = Step::Kind::kMove, .to = place(to)}; }

  const peer::Work& work_;
  const int c_;
  peer::Epoch& epoch_;
  const Planted& planted_;
  std::vector<Step>& steps_;
  int barrier_ = 0;
  bool copied_ = false;
  bool together_ = false;
};

// Ranks that write inputs, run the calls and check outputs, repeatedly, like replays of a graph.
class Program {
 public:
  Program(const Model& model, const Planted& planted)
      : model_(model), planted_(planted), values_(static_cast<std::size_t>(model.places())) {
    for (int r = 0; r < model.world; ++r)
      for (int c = 0; c < model.ctas; ++c) {
        Agent agent{.rank = r};
        for (int p = 0; p < model.world; ++p)
          if (p != r) {
            agent.writes.push_back(static_cast<std::uint8_t>(model.flag(r, p, c)));
            agent.reads.push_back(static_cast<std::uint8_t>(model.flag(p, r, c)));
          }
        agents_.push_back(agent);
      }
    epochs_.resize(agents_.size());
  }

  void replay(const std::vector<Call>& calls) {
    const int input = calls[0].kind == CollectiveKind::kReduce ? 1 : 0;
    for (int r = 0; r < model_.world; ++r)
      for (int b = 0; b < model_.blocks(); ++b)
        write(r, model_.place(r, input, b));
    border();
    for (const Call& call : calls)
      run(call);
    for (int r = 0; r < model_.world; ++r)
      for (int vector = 0; vector < 3; ++vector)
        for (int b = 0; b < model_.blocks(); ++b) {
          const int place = model_.place(r, vector, b);
          if (values_[static_cast<std::size_t>(place)] == 0) continue;  // never written
          agent(r, 0).steps.push_back({.kind = Step::Kind::kCheck,
                                       .to = static_cast<std::uint8_t>(place),
                                       .constant = values_[static_cast<std::size_t>(place)]});
        }
  }

  [[nodiscard]] Verdict explore(std::int64_t max_states) const {
    return test::explore(agents_, model_.places(), model_.first_flag(), max_states);
  }

 private:
  [[nodiscard]] std::size_t index(int rank, int c) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(model_.ctas) +
           static_cast<std::size_t>(c);
  }
  Agent& agent(int rank, int c) { return agents_[index(rank, c)]; }
  void write(int rank, int place) {
    const Step step{
        .kind = Step::Kind::kMove, .to = static_cast<std::uint8_t>(place), .constant = fresh_ += 5};
    agent(rank, 0).steps.push_back(step);
    carry_out(step);
  }
  void border() {
    for (Agent& one : agents_)
      one.steps.push_back({.kind = Step::Kind::kJoin});
  }
  void carry_out(const Step& step) {  // sequentially: the expected result
    auto sum = step.constant;
    for (const std::uint8_t from : step.from)
      sum = static_cast<std::uint8_t>(sum + values_[from]);
    values_[step.to] = sum;
  }

  void run(const Call& call) {
    const std::vector<Collective> all = posts(model_, call.kind);
    std::vector<Step> sums;
    std::vector<Step> copies;
    for (int r = 0; r < model_.world; ++r) {
      peer::Work work = peer::share_work(r, all);
      work.ctas = call.ctas;
      for (int c = 0; c < call.ctas; ++c) {
        Agent& one = agent(r, c);
        const std::size_t before = one.steps.size();
        Recorder recorder(work, c, epochs_[index(r, c)], planted_, one.steps);
        EXPECT_TRUE(peer::take_part(recorder));
        for (std::size_t i = before; i < one.steps.size(); ++i)
          if (one.steps[i].kind == Step::Kind::kMove)
            (one.steps[i].from.size() > 1 ? sums : copies).push_back(one.steps[i]);
      }
    }
    for (const auto* moves : {&sums, &copies})
      for (const Step& step : *moves)
        carry_out(step);
    border();
  }

  const Model model_;
  const Planted planted_;
  std::vector<Agent> agents_;
  std::vector<peer::Epoch> epochs_;
  std::vector<std::uint8_t> values_;
  std::uint8_t fresh_ = 0;
};

constexpr std::int64_t kMaxStates = 20'000'000;

Verdict check(const Model& model, const std::vector<Call>& calls, int replays,
              const Planted& planted = {}) {
  Program program(model, planted);
  for (int i = 0; i < replays; ++i)
    program.replay(calls);
  return program.explore(kMaxStates);
}

void expect_safe(const Model& model, const std::vector<Call>& calls, int replays) {
  const Verdict verdict = check(model, calls, replays);
  EXPECT_EQ(verdict.error, "");
  EXPECT_EQ(verdict.cut, 0);
  EXPECT_GT(verdict.states, 100);
  testing::Test::RecordProperty("states", std::to_string(verdict.states));
}

const std::vector<Call> kAll = {{CollectiveKind::kAllReduce, 1},
                                {CollectiveKind::kAllGather, 1},
                                {CollectiveKind::kBroadcast, 1},
                                {CollectiveKind::kReduce, 1}};

TEST(PeerProtocol, IsSafeForTwoRanks) {
  expect_safe({2, 1}, kAll, 3);
  for (const Call& call : kAll)
    expect_safe({2, 1}, {call}, 3);
}

TEST(PeerProtocol, IsSafeForThreeRanks) {
  expect_safe({3, 1}, kAll, 3);
  for (const Call& call : kAll)
    expect_safe({3, 1}, {call}, 3);
}

// A grid of two, then one of one: a CTA reads what another CTA of the peer wrote.
TEST(PeerProtocol, IsSafeForTwoRanksOfTwoCtas) {
  std::vector<Call> calls = kAll;
  calls[0].ctas = calls[3].ctas = 2;
  expect_safe({2, 2}, calls, 3);
}

// Sensitivity of the model: each of these is a bug, and must be found.
TEST(PeerProtocol, EveryPlantedBugIsFound) {
  using enum Barrier;
  const Planted planted[] = {
      {.name = "no entry barrier", .missing = kEntry},
      {.name = "no middle barrier", .missing = kMiddle},
      {.name = "no exit barrier", .missing = kExit},
      {.name = "a relaxed signal at entry", .relaxed_signal = kEntry},
      {.name = "a relaxed signal in the middle", .relaxed_signal = kMiddle},
      {.name = "a relaxed signal at exit", .relaxed_signal = kExit},
      {.name = "a relaxed wait at entry", .relaxed_wait = kEntry},
      {.name = "a relaxed wait in the middle", .relaxed_wait = kMiddle},
      {.name = "a relaxed wait at exit", .relaxed_wait = kExit},
      {.name = "epochs that start anew in every kernel", .same_epochs = true},
  };
  for (const Planted& bug : planted)
    for (const int world : {2, 3}) {
      const std::string error = check({world, 1}, kAll, 2, bug).error;
      EXPECT_NE(error, "") << bug.name << ", " << world << " ranks";
      EXPECT_NE(error, "too many states") << bug.name;
      EXPECT_NE(error, "nobody can go on") << bug.name;
    }
}

}  // namespace
}  // namespace muo
