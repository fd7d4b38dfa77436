#include "runtime/timeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "graphs/run_state.h"
#include "kit/bench/step_times.h"
#include "kit/bench/timeline_report.h"
#include "runtime/graph_trace.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/toy_training.h"

namespace muo::kit {
namespace {

using test::ToyTraining;
using testing::ElementsAre;
using testing::HasSubstr;

TimelineFile read(const std::string& text) { return read_timeline(text, "step.json"); }

std::vector<const TimelineSlice*> operations_of(const TimelineFile& file, int rank) {
  std::vector<const TimelineSlice*> out;
  for (const TimelineSlice& slice : file.slices)
    if (slice.is_operation && slice.rank == rank) out.push_back(&slice);
  return out;
}

// Two steps of three ranks with a loop of micro-steps: every operation of the replays is there,
// with the work that `bench step` counts, and together they take the whole step.
TEST(Timeline, NamesAllWorkOfAStep) {
  constexpr int kWorld = 3;
  test::TemporaryDirectory dir;
  Timeline timeline((dir.path() / "step.json"));
  std::vector<std::deque<NodeSums>> times(kWorld);
  std::vector<std::vector<OperationTime>> rows(kWorld);
  std::vector<std::optional<StepRecorder>> recorders(kWorld);
  ToyTraining run{.world = kWorld, .accumulation = 10, .steps = 4, .gates = true};
  const test::ToyCurves plain = test::train(run);
  run.before_step = [&](RankContext& rank, graphs::RunState& state, int step) {
    const auto r = static_cast<std::size_t>(rank.rank);
    if (step == 0) {  // the sums of a step, for comparison
      Graph* graph = state.step.graphs().front();
      graph->observe(&times[r].emplace_back(graph->trace()));
    } else if (step == 1) {
      add_operations(rows[r], *state.step.traces().front(), times[r].front().of());
      recorders[r].emplace(rank.rank, state.step.graphs());
    } else if (step == 3) {
      timeline.add(recorders[r]->take(false));
      recorders[r].reset();
      rank.barrier.arrive([&] { timeline.write(); }, "test");
    }
    if (recorders[r]) recorders[r]->begin_step(step, false);
  };
  const test::ToyCurves recorded = test::train(run);
  EXPECT_EQ(recorded.losses, plain.losses);
  EXPECT_EQ(recorded.weights, plain.weights);

  const TimelineFile file = read(test::read_file((dir.path() / "step.json")));
  EXPECT_EQ(file.ranks, kWorld);
  EXPECT_FALSE(file.steps_left_out);
  for (int rank = 0; rank < kWorld; ++rank) {
    double flops = 0, bytes = 0, seconds = 0;
    std::int64_t calls = 0;
    for (const OperationTime& row : rows[static_cast<std::size_t>(rank)]) {
      flops += row.flops;
      bytes += row.bytes;
      calls += row.calls;
    }
    const std::vector<const TimelineSlice*> operations = operations_of(file, rank);
    EXPECT_EQ(std::ssize(operations), 2 * calls);
    for (const TimelineSlice* slice : operations) {
      flops -= slice->flops / 2;
      bytes -= slice->bytes / 2;
      seconds += slice->end - slice->begin;
      EXPECT_GE(slice->around, 0);
    }
    EXPECT_EQ(flops, 0);
    EXPECT_EQ(bytes, 0);
    std::map<std::string, double> steps;  // from the first lane's begin to the last one's end
    std::set<std::string> lanes;
    double first = 1e9, last = 0, all = 0;
    for (const TimelineSlice& slice : file.slices) {
      if (slice.rank != rank || slice.lane == "host" || slice.around >= 0) continue;
      lanes.insert(slice.lane);
      if (slice.name == "step 2") first = std::min(first, slice.begin);
      if (slice.name == "step 2") last = std::max(last, slice.end);
    }
    EXPECT_EQ(lanes, (std::set<std::string>{"comm", "compute", "update"}));
    double named = 0;
    for (const TimelineSlice* slice : operations)
      if (slice->begin >= first - 1e-9) named += slice->end - slice->begin;
    all = last - first;
    EXPECT_GT(named, 0.99 * all);
    EXPECT_LT(named, 1.01 * all);
  }
  const std::string text = timeline_text(file);
  for (const char* part :
       {"3 ranks, 2 steps of ", "micro-step * > forward > block * forward > attention",
        "micro-step * > backward > block * backward > mlp", "exposed communication: ", "gemm NT ",
        "reduce_scatter", "longest operations"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto json = nlohmann::json::parse(timeline_report_json(file));
  EXPECT_EQ(json["steps"], 2);
  double by_path = 0, by_kind = 0;
  for (const auto& row : json["paths"])
    by_path += row["ms"].get<double>();
  for (const auto& row : json["operations"])
    by_kind += row["ms"].get<double>();
  EXPECT_NEAR(by_path, by_kind, 1e-6 * by_kind);
}

TEST(Timeline, NumbersThePassesOfALoop) {
  std::optional<RankRecord> record;
  std::string text;
  std::optional<StepRecorder> recorder;
  ToyTraining run{.accumulation = 10, .steps = 3};
  run.before_step = [&](RankContext& rank, graphs::RunState& state, int step) {
    if (step == 1) {
      recorder.emplace(rank.rank, state.step.graphs());
      recorder->begin_step(step, false);
    }
    if (step != 2) return;
    record = recorder->take(false);
    text = timeline_json({&*record, 1});
    recorder.reset();
  };
  test::train(run);
  std::vector<std::int64_t> passes;
  const auto json = nlohmann::json::parse(text);
  for (const auto& event : json["traceEvents"])
    if (event["name"] == "micro-step 0" && event.contains("args"))
      passes.push_back(event["args"]["pass"]);
  EXPECT_THAT(passes, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

// A trace of a product and of the reduction of its result.
GraphTrace small_trace() {
  GraphTrace trace;
  trace.streams = {StreamPriority::kNormal, StreamPriority::kHigh};
  trace.ranges = {{.kind = ProfileKind::kPhase, .name = "backward", .number = {}}};
  trace.nodes = {{.name = "gemm",
                  .stream = 0,
                  .after = {},
                  .accesses = {},
                  .cost = {.shape = "NT 2x3x4", .flops = 48, .bytes = 100},
                  .range = 0},
                 {.name = "all_reduce #7", .stream = 1, .after = {0}, .accesses = {}, .range = 0},
                 {.name = "norm", .stream = 0, .after = {1}, .accesses = {}, .range = 0}};
  return trace;
}

// Rank 1 reaches the reduction 2 seconds after rank 0, which ends last: the critical path is rank
// 1's product, the reduction and rank 0's norm.
TEST(Timeline, SplitsACollectiveWhereItsLastRankBegins) {
  const GraphTrace trace = small_trace();
  const auto rank_record = [&](int rank, double product, double end) {
    RankRecord record{.rank = rank, .graphs = {&trace}, .steps = {}};
    StepRecord step{.step = 5, .runs = {}, .host = {}, .launches = {}};
    const auto add = [&](std::uint32_t node, double begin, double finish) {
      step.runs.push_back({.graph = 0, .run = {.node = node, .begin = begin, .end = finish}});
    };
    add(0, 10, 10 + product);
    add(1, 10 + product, 14);
    add(2, 14, end);
    step.host = {{.name = "step", .number = 5, .begin = 9, .end = end}};
    record.steps.push_back(std::move(step));
    return record;
  };
  const std::vector<RankRecord> records = {rank_record(0, 1, 16), rank_record(1, 3, 15)};
  const TimelineFile file = read(timeline_json(records));
  const std::vector<const TimelineSlice*> first = operations_of(file, 0);
  const std::vector<const TimelineSlice*> second = operations_of(file, 1);
  const auto find = [](const std::vector<const TimelineSlice*>& all, const std::string& name) {
    for (const TimelineSlice* slice : all)
      if (slice->name == name) return *slice;
    throw Error(name);
  };
  EXPECT_NEAR(find(first, "all_reduce #7").waited, 2, 1e-6);
  EXPECT_EQ(find(second, "all_reduce #7").waited, 0);
  EXPECT_FALSE(find(first, "gemm").critical);
  EXPECT_TRUE(find(second, "gemm").critical);
  EXPECT_TRUE(find(first, "all_reduce #7").critical);  // after its wait
  EXPECT_FALSE(find(second, "all_reduce #7").critical);
  EXPECT_TRUE(find(first, "norm").critical);
  EXPECT_FALSE(find(second, "norm").critical);
  EXPECT_EQ(find(first, "gemm").shape, "NT 2x3x4");
  EXPECT_EQ(find(first, "gemm").flops, 48);

  const auto report = nlohmann::json::parse(timeline_report_json(file));
  EXPECT_NEAR(report["step_ms"].get<double>(), 5500, 1e-3);  // 10 to 16, 10 to 15
  double critical = 0;
  for (const auto& row : report["critical_path"])
    critical += row["ms"].get<double>();
  EXPECT_NEAR(critical, 6000, 1e-3);                                          // 10 to 16
  EXPECT_NEAR(report["exposed_communication_ms"].get<double>(), 2000, 1e-3);  // 3 s and 1 s
  EXPECT_NEAR(report["lanes"]["compute"]["longest_gap_ms"].get<double>(), 3000, 1e-3);
  EXPECT_EQ(report["lanes"]["compute"]["gaps"], 2);
  EXPECT_NEAR(report["lanes"]["compute"]["busy"].get<double>(), 7.0 / 11, 1e-9);
}

// A GPU runs the reduction beside the second product of a loop's two passes, and the norm, of two
// kernels, after both. Records may overlap by some nanoseconds.
TEST(Timeline, OfAGpuFollowsTheDependencyThatEndsLast) {
  GraphTrace trace = small_trace();
  trace.nodes = {{.name = "begin_loop", .stream = 0, .after = {}, .accesses = {}},
                 {.name = "gemm", .stream = 0, .after = {0}, .accesses = {}, .range = 0},
                 {.name = "end_pass", .stream = 0, .after = {1}, .accesses = {}},
                 {.name = "all_reduce #7", .stream = 1, .after = {2}, .accesses = {}},
                 {.name = "skipped", .stream = 0, .after = {2}, .accesses = {}},
                 {.name = "norm", .stream = 0, .after = {3, 4}, .accesses = {}}};
  trace.loops = {{.begin = 1, .end = 3}};
  RankRecord record{.rank = 0, .graphs = {&trace}, .steps = {}};
  StepRecord step{.step = 5, .runs = {}, .host = {}, .launches = {{.begin = 8, .end = 9}}};
  const auto add = [&](std::uint32_t node, double begin, double end, std::uint64_t part,
                       const char* kernel) {
    step.runs.push_back({.graph = 0,
                         .run = {.node = node,
                                 .launch = 8,
                                 .begin = begin,
                                 .end = end,
                                 .part = part,
                                 .kernel = kernel}});
  };
  add(0, 10, 11, 100, "begin");
  for (const double at : {11.0, 14.0}) {
    add(1, at, at + 2, 101, "cutlass_\"kernel\"");
    add(2, at + 2, at + 3, 102, "end");
  }
  add(3, 17, 21, 103, "reduce");
  add(5, 22, 23, 105, "sum");
  add(5, 22.9999, 24, 106, "scale");
  record.steps.push_back(std::move(step));
  const std::string text = timeline_json({&record, 1});
  const TimelineFile file = read(text);
  std::vector<std::string> names;
  for (const TimelineSlice* slice : operations_of(file, 0)) {
    names.push_back(slice->name);
    EXPECT_TRUE(slice->critical) << slice->name;
    EXPECT_EQ(slice->waited, 0) << slice->name;
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("begin_loop", "gemm", "end_pass", "gemm",
                                                   "end_pass", "all_reduce #7", "norm"));
  std::vector<std::int64_t> passes;
  std::vector<std::string> kernels;
  int flows = 0;
  const auto json = nlohmann::json::parse(text);
  for (const auto& event : json["traceEvents"]) {
    flows += event["ph"] == "s" ? 1 : 0;
    if (event["name"] == "sum" || event["name"] == "scale")
      kernels.push_back(concat(event["ts"].get<double>(), " ", event["dur"].get<double>()));
    if (event["name"] == "backward") passes.push_back(event["args"]["pass"]);
    const std::string kernel = event.value("/args/kernel"_json_pointer, "");
    EXPECT_EQ(kernel == "cutlass_\"kernel\"", event["name"] == "gemm");
    EXPECT_TRUE(event["name"] != "norm" || kernel.empty());
  }
  EXPECT_THAT(passes, ElementsAre(0, 1));
  EXPECT_EQ(flows, 2);  // from compute to comm and back
  EXPECT_THAT(kernels, ElementsAre("1.2e+07 1e+06", "1.3e+07 1e+06"));
  const auto report = nlohmann::json::parse(timeline_report_json(file));
  double critical = 0;
  for (const auto& row : report["critical_path"])
    critical += row["ms"].get<double>();
  EXPECT_NEAR(critical, 14000, 1e-3);  // 10 to 24, of which 21 to 22 is a gap
}

TEST(Timeline, KeepsTheFirstAndTheSlowestOfManySteps) {
  Timeline timeline("unused");
  const auto steps = [](int count, int slowest) {
    StepRecorder recorder(0, {});
    for (int step = 0; step < count; ++step) {
      recorder.begin_step(step, step > 1 && step - 1 <= slowest);  // each slower than the last one
      const ProfileRange range(ProfileKind::kStep, ProfileRange::Payload{step}, "step");
    }
    const RankRecord record = recorder.take(count - 1 <= slowest);
    std::vector<std::int64_t> kept;
    for (const StepRecord& step : record.steps) {
      kept.push_back(step.step);
      EXPECT_EQ(step.host.size(), 1U);
      EXPECT_EQ(step.host.front().number, step.step);
      EXPECT_GT(step.host.front().end, 0);
    }
    EXPECT_EQ(record.left_out_steps, kept.size() < static_cast<std::size_t>(count));
    return kept;
  };
  EXPECT_EQ(steps(16, 3).size(), 16U);
  EXPECT_THAT(steps(17, 3), ElementsAre(0, 3));
  EXPECT_THAT(steps(100, 99), ElementsAre(0, 99));

  EXPECT_FALSE(timeline.last_is_slowest());  // the recording begins
  EXPECT_FALSE(timeline.last_is_slowest());  // the first step
  EXPECT_TRUE(timeline.last_is_slowest());   // the slowest so far
}

TEST(Timeline, MalformedFilesAreRefused) {
  const auto error = [](const std::string& events) {
    return test::message_of<InputError>(
        [&] { read(fmt::format(R"({{"traceEvents":[{}]}})", events)); });
  };
  const auto slice = [](const char* name, double begin, double duration, int lane = 1) {
    return fmt::format(R"({{"ph":"X","name":"{}","pid":0,"tid":{},"ts":{},"dur":{}}})", name, lane,
                       begin, duration);
  };
  EXPECT_THAT(error(slice("a", 0, 10) + "," + slice("b", 5, 10)),
              HasSubstr("the slice b at 5e-06 s ends after a, in which it begins"));
  EXPECT_THAT(error(slice("a", -1, 10)), HasSubstr("begins at"));
  EXPECT_THAT(error(slice("a", 1, -10)), HasSubstr("takes"));
  EXPECT_THAT(error(slice("a", 1, 10, 4)), HasSubstr("lane 4"));
  EXPECT_THAT(error(R"({"ph":"s","name":"x","id":3,"ts":1})"), HasSubstr("flow 3 has no end"));
  EXPECT_THAT(error(R"({"ph":"X"})"), HasSubstr("step.json: not a timeline of muograph"));
  EXPECT_THAT(test::message_of<InputError>([] { read("{}"); }), HasSubstr("traceEvents"));
  EXPECT_THAT(test::message_of<InputError>([] { read("{"); }), HasSubstr("step.json"));
  EXPECT_NO_THROW(read(R"({"traceEvents":[]})"));
}

}  // namespace
}  // namespace muo::kit
