// Records steps with --timeline and reads the file with `muograph timeline`, as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "system/training_run.h"

namespace muo {
namespace {

using test::Outcome;
using test::run_program;
using testing::HasSubstr;

class RecordedSteps : public Training {
 protected:
  [[nodiscard]] std::string file(const std::string& name = "step.json") const {
    return path(name).string();
  }
  [[nodiscard]] std::string read(const std::string& name = "step.json") const {
    const Outcome outcome = run_program("timeline " + file(name));
    if (outcome.code != 0) throw Error(outcome.err);
    return outcome.out;
  }
  [[nodiscard]] bool contains(const std::string& name, const std::string& part) const {
    return test::read_file(file(name)).find(part) != std::string::npos;
  }
};

TEST_F(RecordedSteps, ChangeNoBit) {
  train("plain");
  const Outcome outcome = train("recorded", "--timeline " + file());
  EXPECT_THAT(outcome.out, HasSubstr("timeline: " + file() + "\n"));
  EXPECT_EQ(tensors("recorded", 20), tensors("plain", 20));
  const std::string text = read();
  for (const char* part : {"2 ranks, 1 step of ", "micro-step * > forward > block * forward > mlp",
                           "gemm NT ", " GB/s", "comm", "longest operations"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_TRUE(contains("step.json", "\"step 2\""));
}

TEST_F(RecordedSteps, AreTheFirstAndTheSlowestOfMany) {
  train("many", "--profile-steps 2:20 --timeline " + file());
  EXPECT_THAT(read(), HasSubstr("2 steps of "));
  EXPECT_THAT(read(), HasSubstr("(the first and the slowest)"));
  train("few", "--num-iterations 3 --devices 1 --profile-steps 1:3 --timeline " + file("few.json"));
  EXPECT_THAT(read("few.json"), HasSubstr("1 rank, 2 steps of "));
  const Outcome none =
      run_program("train --resume " + path("few").string() +
                  " --num-iterations 5 --profile-steps 1:3 --timeline " + file("none.json"));
  EXPECT_THAT(none.out, HasSubstr("warning: --timeline: none of the steps to record was run"));
  train("one", "--num-iterations 1 --devices 1 --timeline " + file("one.json"));
  EXPECT_THAT(read("one.json"), HasSubstr("1 rank, 1 step of "));
}

TEST_F(RecordedSteps, HaveRangesOnlyWithoutAGraph) {
  train("eager", "--graph off --timeline " + file());
  EXPECT_THAT(read(), HasSubstr("no operations"));
  for (const char* range : {"\"batch\"", "\"step 2\"", "\"block 0 backward\"", "\"attention\""})
    EXPECT_TRUE(contains("step.json", range)) << range;
}

TEST_F(RecordedSteps, MayBeThoseOfABenchmark) {
  const Outcome outcome = run_program(
      "bench step --depth 1 --max-seq-len 64 --total-batch-size 128 --device-batch-size 1 "
      "--devices 2 --steps 2 --timeline " +
      file());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("timeline: " + file()));
  EXPECT_THAT(read(), HasSubstr("2 ranks, 1 step of "));
}

TEST_F(RecordedSteps, MayBeTheTokensOfASample) {
  train("trained", "--num-iterations 2");
  const std::string sample =
      "sample --max-tokens 20 --seed 3 --checkpoint " + path("trained").string();
  const Outcome recorded = run_program(sample + " --timeline " + file());
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_EQ(recorded.out, run_program(sample).out);
  EXPECT_THAT(recorded.err, HasSubstr("timeline: " + file()));
  EXPECT_THAT(read(), HasSubstr("1 rank, 2 steps of "));
  EXPECT_THAT(read(), HasSubstr("(the first and the slowest)"));
  EXPECT_TRUE(contains("step.json", "\"decode_attention\""));
}

// On GPUs CUPTI measures the operations; here a stand-in does.
TEST_F(RecordedSteps, OfGpusHaveTheirKernels) {
  const auto record = [&](const std::string& cupti) {
    return run_program(
        options("gpu" + cupti,
                "--num-iterations 4 --total-batch-size 256 --eval-every -1 --backend cuda --dtype "
                "fp32 --devices 1 --ranks-per-device 2 --timeline " +
                    file(cupti + ".json")),
        "MUO_CUDA_PLUGIN=muograph_simt CUPTI_STAND_IN=" + cupti);
  };
  const Outcome whole = record("whole");
  ASSERT_EQ(whole.code, 0) << whole.err << whole.out;
  EXPECT_THAT(whole.out, HasSubstr("timeline: " + file("whole.json") + "\n"));
  const std::string text = read("whole.json");
  for (const char* part : {"2 ranks, 1 step of ", "block * forward > mlp",
                           "attention_backward 4x32", "reduce_scatter", "longest operations"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_TRUE(contains("whole.json", "\"kernel\":\"rms_norm_kernel<float"));
  // Without a callback for an executable graph's nodes their ids are derived.
  EXPECT_THAT(record("silent").out, HasSubstr("timeline: " + file("silent.json") + "\n"));
  EXPECT_THAT(read("silent.json"), HasSubstr("block * forward > mlp"));
  EXPECT_THAT(record("drops").out,
              testing::ContainsRegex("drops.json \\([0-9]+ kernels are missing\\)"));
  EXPECT_THAT(read("drops.json"), HasSubstr("block * forward > mlp"));
  const Outcome taken = record("taken");
  EXPECT_EQ(taken.code, 0);
  EXPECT_THAT(taken.out,
              HasSubstr("(of the host only: another profiler uses CUPTI: run without it)"));
  EXPECT_THAT(read("taken.json"), HasSubstr("no operations"));
  EXPECT_EQ(tensors("gpuwhole", 4), tensors("gputaken", 4));
}

TEST_F(RecordedSteps, AreRefusedWhereTheyCannotBeWrittenOrRead) {
  const Outcome nowhere = run_program(options("no", "--timeline /nowhere/step.json"));
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--timeline: cannot write to /nowhere/step.json"));
  const Outcome bench = run_program("bench step --depth 1 --timeline /nowhere/step.json");
  EXPECT_EQ(bench.code, 2);
  EXPECT_THAT(bench.err, HasSubstr("--timeline: cannot write to /nowhere/step.json"));
  test::write_file(path("other.json"), "{}");
  const Outcome other = run_program("timeline " + file("other.json"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("not a timeline of muograph"));
}

}  // namespace
}  // namespace muo
