#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/profile_range.h"
#include "support/files.h"
#include "support/program.h"
#include "system/run_files.h"

// A training run as a profiler sees it: nvtx_recorder.cpp takes the place of Nsight Systems.
namespace muo {
namespace {

// The path of the recorder's library, which is built only if the NVTX headers are available.
#ifdef MUO_NVTX_RECORDER
const std::string kRecorder = MUO_NVTX_RECORDER;
#else
const std::string kRecorder;
#endif

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

struct Range {
  std::string kind;
  std::string name;
  std::optional<std::int64_t> payload;
  const Range* parent = nullptr;
};

// The ranges of one thread, in the order in which they began.
class Timeline {
 public:
  void push(Range range) {
    range.parent = open_.empty() ? nullptr : open_.back();
    ranges_.push_back(std::make_unique<Range>(std::move(range)));
    open_.push_back(ranges_.back().get());
  }
  void pop() {
    if (open_.empty()) throw Error("a range ends that did not begin");
    open_.pop_back();
  }
  [[nodiscard]] bool balanced() const { return open_.empty(); }

  // The ranges of one kind, optionally of one name, anywhere inside a range named `within`.
  [[nodiscard]] std::vector<const Range*> find(const std::string& kind, const std::string& name,
                                               const std::string& within = "") const {
    std::vector<const Range*> found;
    for (const auto& range : ranges_)
      if (range->kind == kind && (name.empty() || range->name == name) && lies_in(*range, within))
        found.push_back(range.get());
    return found;
  }
  [[nodiscard]] std::size_t count(const std::string& kind, const std::string& name,
                                  const std::string& within = "") const {
    return find(kind, name, within).size();
  }
  // The name and bytes of each collective, in chronological order.
  [[nodiscard]] std::vector<std::string> collectives(const std::string& within) const {
    std::vector<std::string> all;
    for (const Range* range : find("collective", "", within))
      all.push_back(range->name + " " + std::to_string(range->payload.value()));
    return all;
  }

 private:
  static bool lies_in(const Range& range, const std::string& within) {
    if (within.empty()) return true;
    for (const Range* at = range.parent; at != nullptr; at = at->parent)
      if (at->name == within) return true;
    return false;
  }

  std::vector<std::unique_ptr<Range>> ranges_;
  std::vector<const Range*> open_;
};

// Records a run and returns the timelines of the rank threads, without the main thread, which has
// ranges of its own while it plans memory. If `again` is given, records a second run in the same
// folder with these additional options.
std::vector<Timeline> record(const std::string& options, const std::string& again = "") {
  const test::TemporaryDirectory directory;
  test::write_text(directory.path() / "text.txt", 200);
  const std::string events = directory.path() / "events";
  const std::string run =
      "train --data " + (directory.path() / "text.txt").string() + " --out " +
      (directory.path() / "run").string() +
      " --model plain --depth 2 --n-embd 32 --n-head 2 --max-seq-len 32 --device-batch-size 2 "
      "--devices 2 --total-batch-size 256 --sample-every -1 --backend host --replicas own " +
      options + (options.find("--eval-every") == std::string::npos ? " --eval-every -1" : "");
  const std::string recorder =
      "NVTX_INJECTION64_PATH='" + kRecorder + "' NVTX_RECORDER_FILE=" + events;
  const std::string three = run + " --num-iterations 3";
  if (!again.empty() && test::run_program(three).code != 0) throw Error("the first run failed");
  const test::Outcome outcome =
      test::run_program(again.empty() ? three : run + " " + again, recorder);
  if (outcome.code != 0) throw Error("exit code not 0: " + outcome.err);

  std::map<std::string, Timeline> threads;
  std::istringstream lines(test::read_file(events));
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, '\t');)
      fields.push_back(cell);
    if (fields.at(2) != "muograph") throw Error("a range of another domain: " + line);
    if (fields[0] == "pop") {
      threads.at(fields[1]).pop();
      continue;
    }
    Range range{.kind = fields.at(3), .name = fields.at(5), .payload = {}};
    if (fields.at(4) != "-") range.payload = std::stoll(fields[4]);
    threads[fields[1]].push(range);
  }
  std::vector<Timeline> ranks;
  for (auto& [thread, timeline] : threads) {
    if (!timeline.balanced()) throw Error("a range of thread " + thread + " does not end");
    if (timeline.count("step", "") > 0) ranks.push_back(std::move(timeline));
  }
  return ranks;
}

class Profile : public testing::Test {
 protected:
  void SetUp() override {
    if (kRecorder.empty()) GTEST_SKIP() << "built without the headers of NVTX";
  }
};

// Expects the ranges of a step `times` times in the range `within`: `step` if eager, otherwise
// `capture`.
void expect_a_step_in(const Timeline& rank, const std::string& within, std::size_t times) {
  constexpr std::size_t kMicroSteps = 2;
  for (const char* name : {"begin", "finish"})
    EXPECT_EQ(rank.count("phase", name, within), times) << name;
  for (const char* name : {"micro-step", "forward", "losses", "backward"})
    EXPECT_EQ(rank.count("phase", name, within), times * kMicroSteps) << name;
  for (const char* name : {"block 0 forward", "block 1 forward"}) {
    const auto layers = rank.find("layer", name, within);
    EXPECT_EQ(layers.size(), times * kMicroSteps) << name;
    for (const Range* layer : layers)
      EXPECT_EQ(layer->parent->name, "forward");
  }
  for (const char* name : {"block 0 backward", "block 1 backward"}) {
    const auto layers = rank.find("layer", name, within);
    EXPECT_EQ(layers.size(), times * kMicroSteps) << name;
    for (const Range* layer : layers)
      EXPECT_EQ(layer->parent->name, "backward");
  }
  std::map<std::string, std::set<std::string>> buckets;  // by phase: reduce, update and so on
  for (const Range* phase : rank.find("phase", "", within))
    if (const std::size_t space = phase->name.find(' '); space != std::string::npos)
      buckets[phase->name.substr(0, space)].insert(phase->name.substr(space + 1));
  EXPECT_FALSE(buckets["reduce"].empty());
  for (const char* phase : {"update", "commit", "gather"})
    EXPECT_EQ(buckets[phase], buckets["reduce"]) << phase;

  // The reduction and publication of every bucket, and the totals.
  std::size_t reductions = 0, gathers = 0;
  for (const Range* collective : rank.find("collective", "", within)) {
    EXPECT_GT(collective->payload.value(), 0) << collective->name;
    EXPECT_THAT(collective->name, HasSubstr(" #"));
    const std::string& parent = collective->parent->name;
    reductions += parent.starts_with("reduce ") ? 1U : 0U;
    gathers += parent.starts_with("gather ") ? 1U : 0U;
    if (parent == "finish") {
      EXPECT_THAT(collective->name, StartsWith("all_reduce #"));
    }
  }
  EXPECT_GE(reductions, times * buckets["reduce"].size());
  EXPECT_GE(gathers, times * buckets["gather"].size());
  EXPECT_EQ(rank.count("collective", "", within) - reductions - gathers, times) << "totals";
}

std::vector<std::int64_t> payloads(const std::vector<const Range*>& ranges) {
  std::vector<std::int64_t> values;
  values.reserve(ranges.size());
  for (const Range* range : ranges)
    values.push_back(range->payload.value());
  return values;
}

TEST_F(Profile, AGraphIsNamedWhereItIsCapturedAndWhereItIsLaunched) {
  const std::vector<Timeline> ranks = record("--graph on");
  ASSERT_EQ(ranks.size(), 2U);
  for (const Timeline& rank : ranks) {
    EXPECT_THAT(payloads(rank.find("step", "step")), ElementsAre(0, 1, 2));
    EXPECT_EQ(rank.count("launch", "launch", "step"), 3U);
    EXPECT_EQ(rank.count("layer", "", "step"), 0U) << "a replay's work is the graph's";
    // The step is captured twice: on a tracing rank to plan memory, then on the device.
    ASSERT_EQ(rank.count("phase", "capture"), 2U);
    expect_a_step_in(rank, "capture", 2);
  }
  EXPECT_EQ(ranks[0].collectives(""), ranks[1].collectives(""));
}

TEST_F(Profile, TheRequestedStepsAreInOneRangeOfOneRank) {
  const std::vector<Timeline> ranks =
      record("--profile-steps 1:3 --verify-sync-every 1 --eval-every 3 --eval-tokens 64");
  ASSERT_EQ(ranks.size(), 2U);
  std::size_t profiles = 0;
  for (const Timeline& rank : ranks) {
    if (rank.count("phase", "profile") == 1) {
      ++profiles;
      EXPECT_THAT(payloads(rank.find("step", "step", "profile")), ElementsAre(1, 2));
      EXPECT_EQ(rank.count("phase", "evaluation", "profile"), 0U);
      EXPECT_EQ(rank.count("phase", "checkpoint", "profile"), 0U);
    }
    EXPECT_EQ(rank.count("phase", "evaluation"), 2U);  // one at the start, one at the end
    EXPECT_EQ(rank.count("phase", "checkpoint"), 1U);
  }
  EXPECT_EQ(profiles, 1U);
}

TEST_F(Profile, AResumedRunContinuesToCountItsSteps) {
  const std::vector<Timeline> ranks = record("", "--num-iterations 5 --resume auto");
  ASSERT_EQ(ranks.size(), 2U);
  for (const Timeline& rank : ranks)
    EXPECT_THAT(payloads(rank.find("step", "step")), ElementsAre(3, 4));
}

TEST_F(Profile, AnEagerStepIsNamedThroughout) {
  const std::vector<Timeline> ranks = record("--graph off");
  ASSERT_EQ(ranks.size(), 2U);
  for (const Timeline& rank : ranks) {
    EXPECT_THAT(payloads(rank.find("step", "step")), ElementsAre(0, 1, 2));
    EXPECT_EQ(rank.count("launch", ""), 0U);
    expect_a_step_in(rank, "step", 3);
  }
  EXPECT_EQ(ranks[0].collectives("step"), ranks[1].collectives("step"));
}

// A part of a name that counts how often it is formatted.
struct CountingPart {
  int& times;
};
std::ostream& operator<<(std::ostream& out, const CountingPart& part) {
  ++part.times;
  return out << "part";
}

TEST(ProfileRange, FormatsNoNamesWithoutAProfiler) {
  ASSERT_FALSE(profiled()) << "is this test itself profiled?";
  int times = 0;
  {
    const ProfileRange bare(ProfileKind::kPhase, "a ", CountingPart{times});
    const ProfileRange range(ProfileKind::kPhase, ProfileRange::Payload{3}, CountingPart{times});
  }
  EXPECT_EQ(times, 0);
}

}  // namespace
}  // namespace muo
