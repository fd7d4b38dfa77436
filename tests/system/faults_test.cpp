#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "support/checkpoint_state.h"
#include "support/files.h"
#include "support/program.h"
#include "support/sanitized.h"
#include "system/run_files.h"
#include "trainer/checkpoint/checkpoint.h"

// Runs the program with a fault injected into one call of one rank
// (tests/stand_ins/fault_plugin.cpp). Checks how it ends, its messages, the files it leaves, and
// that it can be resumed from them.
namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSteps = 6;
constexpr int kTimeout = test::kThreadSanitizer ? 10 : 3;  // seconds, for --stuck-after

// Placement of the ranks.
struct Place {
  std::string name;
  int world;
  std::string environment, options;
  [[nodiscard]] bool on_host() const { return environment.ends_with("host"); }
};
const Place kHost{"host", 4, "MUO_FAULT_BACKEND=host", "--devices 4"};
const Place kSharded{"sharded", 2, "MUO_FAULT_BACKEND=host", "--devices 2 --shard weights"};
const Place kPeer{"peer", 2, "MUO_FAULT_BACKEND=simt", "--devices 1 --ranks-per-device 2"};
const Place kNccl{"nccl", 2, "MUO_FAULT_BACKEND=simt",
                  "--devices 2 --comm nccl --gradient-wire fp32"};

// A call in a phase (rank_progress.h) and the faults that can be injected into it.
struct Point {
  std::string call;
  int count;
  std::int64_t step;
  std::string phase;
  std::vector<std::string> kinds;
  bool first_rank_only = false;
};

const std::vector<std::string> kAnything = {"throw", "device", "hang", "pause"};

std::vector<Point> points(const Place& place) {
  const std::vector<std::string> memory = {"memory", "throw", "hang"};
  const std::vector<std::string> collective =
      place.on_host() ? kAnything : std::vector<std::string>{"device", "hang", "pause"};
  std::vector<Point> all = {
      {"make_device", 1, -1, "", {"throw", "hang"}},
      {"join", 1, -1, "", kAnything},
      {"allocate", 1, -1, "the start-up", memory},
      {"allocate_pinned", 1, -1, "", memory},
      {"capture", 1, -1, "the capture of its graphs", kAnything},
      {"copy", 3, -1, "the initialization of weights", kAnything},
      {"launch", 1, 0, "the step", kAnything},
      {"copy", 2, 2, "the step", kAnything},
      {"launch", 1, 3, "the step", kAnything},
      {"collective", 1, 3, "the step", collective},
      {"collective", 4, 3, "the step", collective},
      {"event", 1, 3, "the step", kAnything},
      {"check", 1, 3, "the step", {"throw"}},
      {"launch", 1, 3, "the evaluation", kAnything},
      {"synchronize", 1, 3, "the evaluation", kAnything},
      {"collective", 1, 3, "the evaluation", collective},
      {"launch", 5, 3, "sampling", kAnything, true},
      {"synchronize", 1, 2, "the saving of a checkpoint", kAnything},  // before the ranks meet
      {"copy", 2, 2, "the saving of a checkpoint", kAnything},         // copies a part
      {"synchronize", 2, 4, "the saving of a checkpoint", kAnything},
      {"synchronize", 1, 3, "the comparison of weights", kAnything},
      {"collective", 1, 3, "the comparison of weights", collective},
      {"synchronize", 1, kSteps, "the start of the step", kAnything},  // none: the end
      {"synchronize", 2, kSteps, "the saving of a checkpoint", kAnything},
      {"synchronize", 1, kSteps, "the evaluation", kAnything},
  };
  if (!place.on_host()) all.push_back({"zero", 1, -1, "the warm-up", kAnything});
  return all;
}

struct Case {
  const Place* place;
  Point point;
  std::string kind;
  int rank;

  // True if the fault occurs on the GPU rather than on a rank's thread: then nothing is thrown at
  // the call, and the next call of any rank's thread reports it.
  [[nodiscard]] bool on_gpu() const { return point.call == "collective" && !place->on_host(); }
  [[nodiscard]] std::string text() const {
    return concat(kind, ":", rank, ":", point.step, ":", point.call, ":", point.count, ":",
                  point.phase);
  }
};

class Faults {
 public:
  explicit Faults(const Place& place) : place_(place) {
    test::write_text(directory_.path() / "text.txt", 600);
    const Outcome outcome = run("whole", "", "");
    if (outcome.code != 0) throw Error(outcome.err + outcome.out);
    whole_ = tensors("whole");
  }

  // Describes what is wrong with the end of the run and its files; empty if nothing is.
  [[nodiscard]] std::string complaints(const Case& c, const std::string& out) const {
    const bool waits = c.kind == "hang" || c.kind == "pause";
    const Clock::time_point start = Clock::now();
    const Outcome outcome = run(out, "MUO_FAULT='" + c.text() + "'", waits ? timeout() : "");
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::ostringstream wrong;
    if (outcome.code != 3) wrong << "exit code " << outcome.code << "; ";
    if (seconds > 30) wrong << seconds << " s; ";
    const std::string where = c.point.step < 0
                                  ? concat("rank ", c.rank, ": ")
                                  : concat("rank ", c.rank, ", step ", c.point.step, ": ");
    const std::string what = waits                ? concat("no heartbeat for ", kTimeout)
                             : c.kind == "memory" ? "std::bad_alloc"
                             : c.kind == "device" ? "cudaErrorIllegalAddress"
                                                  : "planted failure";
    const std::string cause = "muograph: error: " + (c.on_gpu() ? std::string("rank ") : where);
    if (!outcome.err.starts_with(cause) || outcome.err.find(what) == std::string::npos ||
        (c.on_gpu() && outcome.err.find(", step ") == std::string::npos) ||
        outcome.err.find('\n') != outcome.err.size() - 1)
      wrong << "stderr: " << outcome.err << "; ";
    if (outcome.err.ends_with("exits without it\n") != (c.kind == "hang"))
      wrong << "left how? " << outcome.err << "; ";
    if (waits && place_.name == "nccl" &&
        outcome.err.find("try --process-per-device") == std::string::npos)
      wrong << "no advice: " << outcome.err << "; ";
    check_files(c, out, wrong);
    if (!fs::exists(trainer::checkpoint_directory(directory_.path() / out, kSteps)))
      if (const Outcome resumed = run(out, "", "--resume auto --stuck-after 0"); resumed.code != 0)
        wrong << "resuming: " << resumed.err;
    if (tensors(out) != whole_) wrong << "in the end it is another run; ";
    for (const std::string& name : test::names_in(directory_.path() / out / "checkpoints"))
      if (!name.starts_with("step_")) wrong << name << " is left; ";
    std::error_code ignored;
    fs::remove_all(directory_.path() / out, ignored);
    return wrong.str();
  }

  // The outcome of a run that receives SIGTERM while it hangs.
  [[nodiscard]] Outcome terminated(const Case& c) const {
    const std::string hangs = directory_.path() / "hangs";
    return run("terminated", "MUO_FAULT='" + c.text() + "' MUO_FAULT_FILE=" + hangs,
               timeout() + " & pid=$!; " + test::until("[ -e " + hangs + " ]") +
                   "kill -TERM $pid; wait $pid");
  }

 private:
  static std::string timeout() { return concat("--stuck-after ", kTimeout); }
  [[nodiscard]] Outcome run(const std::string& out, const std::string& fault,
                            const std::string& more) const {
    const std::string path = directory_.path().string() + "/";
    return test::run_program(
        "train --data " + path + "text.txt --out " + path + out +
            " --backend cuda --dtype fp32 --model plain --depth 1 --n-embd 32 --n-head 2 "
            "--max-seq-len 16 --total-batch-size 128 --device-batch-size 2 --warmup-steps 2 "
            "--eval-every 3 --eval-tokens 64 --sample-every 3 --save-every 2 --verify-sync-every 2 "
            "--num-iterations " +
            std::to_string(kSteps) + " " + place_.options + " " + more,
        place_.environment +
            concat(" MUO_CUDA_PLUGIN=muograph_faults MUO_FAULT_PAUSE=", kTimeout + 3, " ", fault));
  }
  [[nodiscard]] std::string tensors(const std::string& out) const {
    const fs::path checkpoint = trainer::checkpoint_directory(directory_.path() / out, kSteps);
    return test::read_file(checkpoint / "model.safetensors") +
           test::read_file(checkpoint / "optimizer.safetensors");
  }

  // Checks that every committed checkpoint is complete, that none is missing, and that the log has
  // every finished step.
  void check_files(const Case& c, const std::string& out, std::ostringstream& wrong) const {
    const fs::path run = directory_.path() / out;
    for (std::int64_t step = 2; step <= kSteps; step += 2) {
      const fs::path path = trainer::checkpoint_directory(run, step);
      const bool ends_before_it = step >= c.point.step;
      if (!fs::exists(path)) {
        if (!ends_before_it) wrong << "no checkpoint of step " << step << "; ";
        continue;
      }
      try {
        static_cast<void>(trainer::Checkpoint(path));
      } catch (const std::exception& error) {
        wrong << error.what() << "; ";
      }
    }
    std::int64_t records = 0;
    std::istringstream lines(test::read_file(run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line, nullptr, false);
      if (record.is_discarded()) wrong << "half a line: " << line << "; ";
      if (!record.is_discarded() && record["kind"] == "train") ++records;
    }
    if (records < c.point.step - 1) wrong << records << " steps in the log; ";
  }

  const Place& place_;
  test::TemporaryDirectory directory_;
  std::string whole_;
};

// Runs several cases concurrently, because hanging ones only wait.
void expect_good_ends(const Place& place, const std::vector<Case>& cases) {
  const Faults faults(place);
  std::vector<std::string> complaints(cases.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < cases.size(); i = next++)
      complaints[i] = faults.complaints(cases[i], "run" + std::to_string(i));
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i)
      threads.emplace_back(work);
  }
  for (std::size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(complaints[i], "") << place.name << " " << cases[i].text();
}

// Takes every `stride`th point once, from `first` on, alternating kinds of faults and ranks.
std::vector<Case> some(const Place& place, std::size_t first = 0, std::size_t stride = 1) {
  const std::vector<Point> from = points(place);
  std::vector<Case> cases;
  for (std::size_t i = first; i < from.size(); i += stride) {
    const std::size_t turn = cases.size();
    const int rank = from[i].first_rank_only ? 0 : static_cast<int>(turn) % place.world;
    cases.push_back({&place, from[i], from[i].kinds[turn / 2 % from[i].kinds.size()], rank});
  }
  return cases;
}

std::vector<Case> all(const Place& place) {
  std::vector<Case> cases;
  for (const Point& point : points(place))
    for (const std::string& kind : point.kinds)
      for (int rank = 0; rank < (point.first_rank_only ? 1 : place.world); ++rank)
        cases.push_back({&place, point, kind, rank});
  return cases;
}

// The signal requests a stop after a step that never ends.
TEST(Faults, ASignalDoesNotHideThatARankIsStuck) {
  const Faults faults(kHost);
  const Outcome outcome = faults.terminated({&kHost, {"copy", 2, 3, "the step", {}}, "hang", 2});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err,
              testing::StartsWith("muograph: error: rank 2, step 3: no heartbeat for "));
}

// Under sanitizers, where each run takes seconds, only some of the cases run.
TEST(Faults, EndTheRunWithTheirCauseOnTheHost) {
  expect_good_ends(kHost, some(kHost, 0, test::kSanitized ? 3 : 1));
}
TEST(Faults, EndTheRunWithTheirCauseWhereWeightsAreSharded) {
  expect_good_ends(kSharded, some(kSharded, 1, test::kSanitized ? 6 : 2));
}
constexpr std::size_t kSimtStride = test::kSanitized ? 16 : 4;
TEST(SimtFaults, EndTheRunWithTheirCauseOnPeers) {
  expect_good_ends(kPeer, some(kPeer, 0, kSimtStride));
}
TEST(SimtFaults, EndTheRunWithTheirCauseOnNccl) {
  expect_good_ends(kNccl, some(kNccl, 1, kSimtStride));
}

class SlowFaults : public testing::TestWithParam<const Place*> {};

TEST_P(SlowFaults, EndTheRunWithTheirCauseOnEveryRank) {
  if (std::getenv("MUO_SLOW") == nullptr)  // NOLINT(concurrency-mt-unsafe): one thread
    GTEST_SKIP() << "many minutes long; scripts/test.sh --slow runs it";
  expect_good_ends(*GetParam(), all(*GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Slow, SlowFaults, testing::Values(&kHost, &kSharded, &kPeer, &kNccl),
                         [](const auto& place) { return place.param->name; });

}  // namespace
}  // namespace muo
