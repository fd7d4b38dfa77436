#include "trainer/train/logger.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/durable_files.h"
#include "base/file_descriptor.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/files.h"
#include "support/nested_arrays.h"
#include "trainer/train/log_lines.h"

namespace muo::trainer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr auto kPatience = std::chrono::minutes(1);

MetricsRecord record_of(std::int64_t step) {
  MetricsRecord record;
  record.step = step;
  record.sequence = step + 1;
  record.committed = 1;
  record.loss = 2.5;
  record.lr_multiplier = 0.025F;
  record.muon_momentum = 0.85F;
  record.muon_weight_decay = 0.28F;
  record.grad_norm = 0.1;
  return record;
}

std::vector<json> lines_of(const std::filesystem::path& file) {
  std::istringstream in(test::read_file(file));
  std::vector<json> out;
  for (std::string line; std::getline(in, line);)
    out.push_back(json::parse(line));
  return out;
}

TEST(MetricsLine, HasTheKeysInOrder) {
  EXPECT_EQ(train_line(record_of(7), 8192, {.step_ms = 12.5, .tokens_per_s = 655360, .mfu = 0.5}),
            R"({"kind":"train","step":7,"tokens":8192,"loss":2.5,"lr_multiplier":0.025,)"
            R"("muon_momentum":0.85,"muon_weight_decay":0.28,"grad_norm":0.1,"step_ms":12.5,)"
            R"("tokens_per_s":655360,"mfu":0.5})");
  EXPECT_EQ(eval_line(3, 1.25, 1.5), R"({"kind":"eval","step":3,"val_loss":1.25,"val_bpb":1.5})");
}

// Sizes for a model of two layers whose wte was all zero.
UpdateSizes sizes_of(std::int64_t step, bool each_matrix = true) {
  UpdateSizes sizes;
  sizes.step = step;
  sizes.groups = {{.name = "wte", .size = {.rms = 0.25}},
                  {.name = "matrices", .size = {.rms = 0.5, .ratio = 0.125, .u_rms = 0.0625}}};
  if (!each_matrix) return sizes;
  sizes.layers = {{.rms = 0.5, .ratio = 0.125, .u_rms = 0.0625}, {.rms = kNan}};
  sizes.matrices = {{"h.0", sizes.layers[0]}, {"h.1", sizes.layers[1]}};
  return sizes;
}

TEST(MetricsLine, OfAnUpdateHasItsGroupsAndItsMatrices) {
  EXPECT_EQ(update_line(sizes_of(7)),
            R"({"kind":"update","step":7,"wte_rms":0.25,"wte_ratio":null,"matrices_rms":0.5,)"
            R"("matrices_ratio":0.125,"matrices_u_rms":0.0625})");
  EXPECT_EQ(
      matrices_line(sizes_of(7)),
      R"({"kind":"matrices","step":7,"layer_ratio":[0.125,null],"rms":{"h.0":0.5,"h.1":null},)"
      R"("ratio":{"h.0":0.125,"h.1":null},"u_rms":{"h.0":0.0625,"h.1":null}})");
}

TEST(MetricsLine, IsValidJsonWhateverTheNumbers) {
  for (const double value : {kNan, std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(), 1e308, 5e-324, -0.0, 0.1}) {
    MetricsRecord record = record_of(1);
    record.loss = value;
    record.grad_norm = value;
    record.muon_momentum = static_cast<float>(value);
    const json line =
        json::parse(train_line(record, 1, {.step_ms = value, .tokens_per_s = value, .mfu = value}));
    EXPECT_EQ(line["loss"].is_null(), !std::isfinite(value));
    EXPECT_EQ(line["mfu"].is_null(), !std::isfinite(value));
    if (std::isfinite(value)) {
      EXPECT_EQ(line["loss"].get<double>(), value);
      continue;
    }
    EXPECT_TRUE(line.value("nonfinite", false));
    EXPECT_TRUE(json::parse(eval_line(1, value, 1.0)).value("nonfinite", false));
  }
}

TEST(MetricsLine, UnknownNumbersAreNullButNotNonfinite) {
  const json line = json::parse(train_line(record_of(1), 1, {}));
  EXPECT_TRUE(line["mfu"].is_null());
  EXPECT_FALSE(line.contains("nonfinite"));
  EXPECT_TRUE(json::parse(eval_line(1, 1, {}))["val_bpb"].is_null());
}

class LoggerTest : public testing::Test {
 protected:
  LoggerTest() {
    options_.metrics = directory_.path() / "metrics.jsonl";
    options_.iterations = 100;
    options_.tokens.stages = {{.tokens = 1000}};
    options_.terminal = -1;
  }
  [[nodiscard]] std::vector<json> lines() const { return lines_of(options_.metrics); }

  test::TemporaryDirectory directory_;
  LoggerOptions options_;
};

TEST_F(LoggerTest, WritesEveryRecordInOrder) {
  Logger logger(options_);
  for (std::int64_t step = 0; step < 100; ++step) {
    logger.train(record_of(step), 500);
    if (step == 50) logger.eval(step, 2, 2.5);
    if (step == 51) logger.eval(step, 2, -1);
  }
  logger.close();
  const std::vector<json> written = lines();
  ASSERT_EQ(written.size(), 102U);
  EXPECT_EQ(written[50]["step"], 50);
  EXPECT_EQ(written[50]["tokens"], 51000);
  EXPECT_EQ(written[50]["tokens_per_s"], 2000);
  EXPECT_TRUE(written[50]["mfu"].is_null());
  EXPECT_EQ(written[51]["val_bpb"], 2.5);
  EXPECT_TRUE(written[53]["val_bpb"].is_null());
}

TEST_F(LoggerTest, FlushWritesEverythingAndLoggingContinues) {
  Logger logger(options_);
  for (std::int64_t step = 0; step < 50; ++step) {
    logger.train(record_of(step), 1);
    EXPECT_TRUE(logger.flush(kPatience));
    EXPECT_EQ(lines().size(), static_cast<std::size_t>(step + 1));
  }
  logger.close();
  EXPECT_TRUE(logger.flush(kPatience));
}

// A pipe whose reader starts only when more lines are waiting than the queue and the pipe hold.
TEST_F(LoggerTest, WaitsForASlowDisk) {
  constexpr std::int64_t kLines = 8000;
  const std::filesystem::path pipe = directory_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const FileDescriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  options_.metrics = pipe;
  options_.log = directory_.path() / "output.log";
  std::atomic<std::int64_t> submitted = 0;
  std::thread run([&] {
    Logger logger(options_);
    for (; submitted < kLines; ++submitted)
      logger.train(record_of(submitted), 1);
    logger.close();
    ++submitted;
  });
  EXPECT_TRUE(test::eventually([&] { return submitted > 4096; }));
  std::string text, part(1 << 16, '\0');
  while (submitted <= kLines) {
    const ssize_t size = ::read(reader.number(), part.data(), part.size());
    if (size > 0) text.append(part, 0, static_cast<std::size_t>(size));
  }
  run.join();
  for (ssize_t size = 1; size > 0;) {
    size = ::read(reader.number(), part.data(), part.size());
    if (size > 0) text.append(part, 0, static_cast<std::size_t>(size));
  }
  EXPECT_EQ(std::ranges::count(text, '\n'), kLines);
  EXPECT_THAT(text, HasSubstr("\"step\":7999,"));
  EXPECT_THAT(test::read_file(options_.log), HasSubstr("warning: training waits for "));
}

TEST_F(LoggerTest, FlushFailsIfTheDiskCannotBeWritten) {
  Logger logger(options_);
  logger.train(record_of(0), 1);
  EXPECT_TRUE(logger.flush(kPatience));
  const test::FullDisk disk(0);
  logger.train(record_of(1), 1);
  EXPECT_FALSE(logger.flush(kPatience));
  EXPECT_EQ(lines().size(), 1U);
  EXPECT_THROW(logger.close(), WriteError);
}

TEST_F(LoggerTest, LogsMfuOfAKnownPeakAndPowerWhereTheDriverReportsEnergy) {
  const BackendPlugin plugin{.read_power = [](int index) {
    static double joules = 0;
    return std::optional(PowerReading{.joules = ++joules, .clock_mhz = 1500.0 + 100 * index});
  }};
  options_.flops_per_token = 1e6;
  options_.peak_flops = 8e9;
  options_.power = std::make_shared<PowerMeter>(GroupOptions{.world = 2, .plugin = &plugin});
  options_.power_every = {};
  options_.devices = 4;  // two in another process
  Logger logger(options_);
  logger.train(record_of(0), 500);
  logger.close();
  const json line = lines().at(0);
  EXPECT_DOUBLE_EQ(line["mfu"].get<double>(), 2000 * 1e6 / 8e9);
  EXPECT_EQ(line["clock_mhz"], 1550);
  EXPECT_GT(line["watts"], 0);
  EXPECT_DOUBLE_EQ(line["joules"].get<double>(), 4 * line["watts"].get<double>() * 0.5);
}

TEST_F(LoggerTest, SummarizesStepsTokensFlopsTimeAndMfu) {
  const auto out = directory_.path() / "terminal";
  options_.terminal = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
  options_.flops_per_token = 1e6;
  options_.peak_flops = 2e9;
  {
    Logger logger(options_);
    logger.summary();  // prints nothing, because nothing was trained
    logger.train(record_of(0), 1000);
    logger.train(record_of(1), 3000);
    logger.summary();
    logger.close();
  }
  close(options_.terminal);
  // 2000 tokens in 4 s: 500 per second, of 1e6 FLOPs each; a quarter of 2e9.
  const std::string text = test::read_file(out);
  EXPECT_THAT(text,
              HasSubstr("trained 2 steps, 2.00k tokens, 2e+09 FLOPs in 4.00s: 500 tokens/s, MFU "
                        "25.0 %\n"));
  EXPECT_EQ(text.find("trained"), text.rfind("trained"));
}

TEST_F(LoggerTest, LogEveryKeepsEveryNthAndTheLast) {
  options_.log_every = 30;
  Logger logger(options_);
  for (std::int64_t step = 0; step < 100; ++step)
    logger.train(record_of(step), 1);
  logger.close();
  std::vector<int> steps;
  for (const json& line : lines())
    steps.push_back(line["step"].get<int>());
  EXPECT_THAT(steps, testing::ElementsAre(0, 30, 60, 90, 99));
}

TEST_F(LoggerTest, LogsUpdatesWithTheStepsAndMatricesIfGiven) {
  options_.log_every = 4;
  options_.iterations = 10;
  Logger logger(options_);
  for (std::int64_t step = 0; step < 10; ++step)
    logger.update(sizes_of(step, step == 6));
  logger.close();
  std::vector<std::string> got;
  for (const json& line : lines())
    got.push_back(line["kind"].get<std::string>() + line["step"].dump());
  EXPECT_THAT(got, testing::ElementsAre("update0", "update4", "matrices6", "update8", "update9"));
}

TEST_F(LoggerTest, AResumedRunReplacesWhatItRepeats) {
  std::string before;
  for (std::int64_t step = 0; step < 6; ++step)
    before += train_line(record_of(step), step, {}) + "\n" + eval_line(step, 1, 1.0) + "\n";
  test::write_file(options_.metrics, before + R"({"kind":7,"step":5}
{"kind":"train","st)");
  options_.first_step = 4;
  Logger logger(options_);
  logger.train(record_of(4), 1);
  logger.close();
  std::vector<std::string> seen;
  for (const json& line : lines())
    seen.push_back(line["kind"].get<std::string>().front() + line["step"].dump());
  EXPECT_THAT(seen,
              testing::ElementsAre("t0", "e0", "t1", "e1", "t2", "e2", "t3", "e3", "e4", "t4"));
}

TEST_F(LoggerTest, AResumedRunDropsDeeplyNestedRecords) {
  const std::string kept = eval_line(1, 1, 1.0) + "\n";
  test::write_file(options_.metrics,
                   R"({"step":0,"kind":)" + test::nested_arrays(200'000) + "}\n" + kept);
  options_.first_step = 2;
  Logger(options_).close();
  EXPECT_EQ(test::read_file(options_.metrics), kept);
}

TEST_F(LoggerTest, ASampleIsARecordWhateverItsBytes) {
  const std::string text = "a\"b\\\n\x01\xE2\x82\xAC\xFF</script>";
  EXPECT_EQ(sample_line(3, text),
            "{\"kind\":\"sample\",\"step\":3,\"text\":"
            "\"a\\\"b\\\\\\n\\u0001\xE2\x82\xAC\xEF\xBF\xBD</script>\"}");
  Logger logger(options_);
  logger.sample(3, text);
  logger.close();
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_EQ(lines()[0]["text"], "a\"b\\\n\x01\xE2\x82\xAC\xEF\xBF\xBD</script>");
}

// The sample at a checkpoint's step was drawn before the checkpoint was saved.
TEST_F(LoggerTest, AResumedRunKeepsTheSampleOfItsFirstStep) {
  std::string before;
  for (std::int64_t step = 0; step < 6; ++step)
    before += sample_line(step, "text") + "\n";
  test::write_file(options_.metrics, before);
  options_.first_step = 4;
  Logger(options_).close();
  EXPECT_EQ(lines().size(), 5U);
  options_.first_step = 0;
  Logger(options_).close();
  EXPECT_EQ(lines().size(), 0U);
}

TEST_F(LoggerTest, AFullDiskIsAnErrorOfALaterCall) {
  options_.metrics = "/dev/full";
  Logger logger(options_);
  logger.train(record_of(0), 1);
  const std::string error = test::message_of<Error>([&] { logger.close(); });
  EXPECT_THAT(error, HasSubstr("cannot write /dev/full: No space left on device"));
}

TEST_F(LoggerTest, AFullDiskStopsTheRunBeforeItsEnd) {
  options_.metrics = "/dev/full";
  Logger logger(options_);
  const std::string error = test::message_of<Error>([&] {
    std::int64_t step = 0;
    static_cast<void>(test::eventually([&] { return logger.train(record_of(step++), 1), false; }));
  });
  EXPECT_THAT(error, HasSubstr("cannot write /dev/full"));
}

TEST_F(LoggerTest, AMissingDirectoryIsAnImmediateError) {
  options_.metrics = directory_.path() / "no" / "metrics.jsonl";
  EXPECT_THAT(test::message_of<Error>([&] { const Logger logger(options_); }),
              HasSubstr("cannot write"));
}

TEST_F(LoggerTest, NotesSamplesAndEvaluationsHaveTheirOwnLines) {
  const auto out = directory_.path() / "terminal";
  options_.terminal = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
  options_.bytes_per_token = 1;
  {
    Logger logger(options_);
    logger.note("hello");
    logger.train(record_of(0), 500);
    logger.eval(1, 2, 2.885);
    logger.sample(1, "to be\x1b[31m\nor not");
    logger.train(record_of(99), 500);
    logger.close();
  }
  close(options_.terminal);
  EXPECT_EQ(test::read_file(out),
            "hello\n"
            "step   1/100  loss 2.5000  3.607 bits/byte  2.00k tokens/s  ETA 50s\n"
            "step 1: held-out loss 2.0000, 2.8850 bits/byte\n"
            "step 1: sample\n  | to be?[31m\n  | or not\n"
            "step 100/100  loss 2.5000  3.607 bits/byte  2.00k tokens/s  ETA 0s\n");
}

TEST_F(LoggerTest, ReportsNonFiniteNumbersOncePerStreak) {
  const auto out = directory_.path() / "terminal";
  options_.terminal = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
  options_.log_every = 100;
  {
    Logger logger(options_);
    std::int64_t updates = 0;
    for (std::int64_t step = 0; step < 7; ++step) {
      MetricsRecord record = record_of(step);
      const bool bad = step == 1 || step == 2 || step >= 5;
      if (bad) record.verdict = Verdict::kNotFinite;
      record.committed = bad ? 0 : 1;
      updates += record.committed;
      record.updates = updates;
      if (step == 1 || step == 2) record.loss = kNan;
      if (step == 6) record.grad_norm = 1e20;
      logger.train(record, 1, step == 1 || step == 5 ? "the gradient of w[3] on rank 1" : "");
    }
    logger.close();
  }
  close(options_.terminal);
  const std::string text = test::read_file(out);
  EXPECT_THAT(text, HasSubstr("step 1: not finite: the loss, and the gradient of w[3] on rank 1; "
                              "weights are unchanged, 1 of 2 updates skipped\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("step 2: not")));
  EXPECT_THAT(text, HasSubstr("step 3: finite again; 2 of 4 updates skipped\n"));
  EXPECT_THAT(text, HasSubstr("step 5: not finite: the gradient of w[3] on rank 1; "));
  // metrics.jsonl has every skipped step, whatever --log-every is.
  std::vector<std::int64_t> skipped;
  for (const auto& line : lines())
    if (line.value("skipped", "") == "nonfinite") skipped.push_back(line["step"]);
  EXPECT_EQ(skipped, (std::vector<std::int64_t>{1, 2, 5, 6}));
  EXPECT_TRUE(lines().at(1).value("nonfinite", false));
  EXPECT_EQ(lines().at(1).value("bad_number", ""), "the gradient of w[3] on rank 1");
  EXPECT_FALSE(lines().at(2).contains("bad_number"));
}

TEST_F(LoggerTest, NamesEveryOutlierWithoutAlarms) {
  const auto out = directory_.path() / "terminal";
  options_.terminal = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
  options_.log_every = 100;
  options_.alarms = false;
  {
    Logger logger(options_);
    logger.train(record_of(0), 1);
    for (const std::int64_t step : {1, 2}) {
      MetricsRecord record = record_of(step);
      record.verdict = Verdict::kOutlier;
      record.loss_deviations = 9.25F;
      record.norm_deviations = -0.5F;
      record.committed = step == 1 ? 1 : 0;
      record.updates = 2;
      record.gradient_scale = 0.5F;
      logger.train(record, 1);
    }
    logger.close();
  }
  close(options_.terminal);
  const std::string text = test::read_file(out);
  const std::string line =
      "outlier: loss 2.5000 is 9.2 standard deviations above its mean, gradient norm 0.1 is -0.5";
  EXPECT_THAT(text, HasSubstr("step 1: " + line + "\n"));
  EXPECT_THAT(text, HasSubstr("step 2: " + line + "; not committed, 1 of 3 updates skipped\n"));
  EXPECT_FALSE(lines().at(0).contains("loss_deviations"));
  EXPECT_EQ(lines().at(1).value("loss_deviations", 0.0), 9.25);
  EXPECT_FALSE(lines().at(1).contains("skipped"));
  EXPECT_EQ(lines().at(2).value("skipped", ""), "outlier");
  EXPECT_EQ(lines().at(2).value("gradient_scale", 0.0), 0.5);
}

TEST_F(LoggerTest, AnAlarmIsALineAndARecord) {
  const auto out = directory_.path() / "terminal";
  options_.terminal = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
  options_.verbosity = Verbosity::kQuiet;
  {
    Logger logger(options_);
    for (std::int64_t step = 0; step < 4; ++step) {
      MetricsRecord record = record_of(step);
      if (step > 0) record.verdict = Verdict::kOutlier;
      record.loss_deviations = 9.25F;
      logger.train(record, 1);
    }
    logger.summary();
    logger.close();
  }
  close(options_.terminal);
  const std::string text = test::read_file(out);
  EXPECT_THAT(text, testing::StartsWith("step 1: outlier: loss 2.5000 is 9.2 standard deviations"));
  EXPECT_THAT(text, testing::Not(HasSubstr("step 2: outlier")));
  EXPECT_THAT(text, HasSubstr("suppressed alarms: loss 2\n"));
  std::vector<std::string> alarms;
  for (const auto& line : lines())
    if (line["kind"] == "alarm") alarms.push_back(line.dump());
  ASSERT_EQ(alarms.size(), 1U);
  EXPECT_THAT(alarms[0], HasSubstr(R"("alarm":"loss")"));
  EXPECT_THAT(alarms[0], HasSubstr(R"("step":1,)"));
}

TEST_F(LoggerTest, TheLogHasAllMessages) {
  const auto out = directory_.path() / "terminal";
  options_.terminal = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
  options_.log = directory_.path() / "output.log";
  options_.verbosity = Verbosity::kQuiet;
  options_.bytes_per_token = 1;
  for (int process = 0; process < 2; ++process) {
    Logger logger(options_);
    logger.note("why", Verbosity::kVerbose);
    logger.note("what");
    logger.note("warning: careful", Verbosity::kVerbose);
    logger.note("end", Verbosity::kQuiet);
    logger.eval(1, 2, 2.5);
    logger.eval(2, 2, 2.25);
    logger.eval(3, 2, std::numeric_limits<double>::quiet_NaN());
    logger.train(record_of(99), 500);
    logger.summary();
    logger.close();
  }
  close(options_.terminal);
  const std::string ends =
      "trained 1 step, 1.00k tokens, 0 FLOPs in 0.50s: 2.00k tokens/s\n"
      "held out: nan bits/byte at step 3; best 2.2500 bits/byte at step 2\n";
  const std::string shown = "warning: careful\nend\n" + ends;
  EXPECT_EQ(test::read_file(out), shown + shown);
  const std::string all =
      "why\nwhat\nwarning: careful\nend\n"
      "step 1: held-out loss 2.0000, 2.5000 bits/byte\n"
      "step 2: held-out loss 2.0000, 2.2500 bits/byte\n"
      "step 3: held-out loss 2.0000, nan bits/byte\n"
      "step 100/100  loss 2.5000  3.607 bits/byte  2.00k tokens/s  ETA 0s\n" +
      ends;
  EXPECT_EQ(test::read_file(options_.log), all + all);
}

}  // namespace
}  // namespace muo::trainer
