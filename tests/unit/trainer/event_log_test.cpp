#include "trainer/train/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <memory>
#include <string>

#include "base/check.h"
#include "support/errors.h"
#include "support/event_reader.h"
#include "support/files.h"
#include "trainer/train/logger.h"

namespace muo::trainer {
namespace {

namespace fs = std::filesystem;
using test::Curves;
using test::event_files;
using test::read_events;
using test::ReadEvent;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

MetricsRecord record_of(std::int64_t step) {
  MetricsRecord record;
  record.step = step;
  record.committed = 1;
  record.loss = 2.5;
  record.lr_multiplier = 0.025F;
  record.muon_momentum = 0.85F;
  record.muon_weight_decay = 0.28F;
  record.grad_norm = 0.1;
  return record;
}

// While this object exists, no file of this process grows beyond this size, which acts like a full
// disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uintmax_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class EventLogTest : public testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<EventLog> log(std::int64_t first_step = 0,
                                              bool may_fail = false) const {
    return std::make_shared<EventLog>(run_, first_step, 1.25, may_fail);
  }
  [[nodiscard]] fs::path file() const {
    const std::vector<fs::path> files = event_files(run_);
    EXPECT_EQ(files.size(), 1U);
    return files.front();
  }
  [[nodiscard]] LoggerOptions logger(std::shared_ptr<EventLog> events) const {
    return {.metrics = run_ / "metrics.jsonl",
            .iterations = 100,
            .tokens = {.stages = {{.tokens = 1000}}},
            .events = std::move(events),
            .terminal = -1};
  }

  test::TemporaryDirectory directory_;
  const fs::path run_ = directory_.path();
};

TEST_F(EventLogTest, BeginsWithVersionAndStart) {
  static_cast<void>(log(300));
  const std::vector<ReadEvent> events = read_events(file());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(events[1].starts);
  EXPECT_EQ(events[1].step, 300);
  EXPECT_NEAR(events[1].wall_time, wall_time(), 60);
}

TEST_F(EventLogTest, HasEveryNumberOfAStep) {
  log()->train(record_of(7), {.step_ms = 500,
                              .tokens_per_s = 2000,
                              .mfu = 0.5,
                              .power = StepSpeed::Power{600, 1500, 300}});
  const ReadEvent step = read_events(file()).back();
  EXPECT_EQ(step.step, 7);
  EXPECT_THAT(step.scalars,
              testing::UnorderedElementsAre(
                  std::pair("train/loss", 2.5F), std::pair("train/lr_multiplier", 0.025F),
                  std::pair("train/muon_momentum", 0.85F),
                  std::pair("train/muon_weight_decay", 0.28F), std::pair("train/grad_norm", 0.1F),
                  std::pair("train/step_ms", 500.0F), std::pair("train/tokens_per_s", 2000.0F),
                  std::pair("train/bpb", static_cast<float>(2.5 / std::log(2.0) / 1.25)),
                  std::pair("train/mfu", 0.5F), std::pair("train/watts", 600.0F),
                  std::pair("train/clock_mhz", 1500.0F), std::pair("train/joules", 300.0F)));
}

TEST_F(EventLogTest, HasTheSizeOfEveryGroupsUpdate) {
  UpdateSizes sizes;
  sizes.step = 7;
  sizes.groups = {{.name = "wte", .size = {.rms = 0.25}},
                  {.name = "matrices", .size = {.rms = 0.5, .ratio = 0.125, .u_rms = 0.0625}}};
  log()->update(sizes);
  const ReadEvent event = read_events(file()).back();
  EXPECT_EQ(event.step, 7);
  EXPECT_THAT(event.scalars,
              testing::UnorderedElementsAre(std::pair("update_rms/wte", 0.25F),
                                            std::pair("update_rms/matrices", 0.5F),
                                            std::pair("update_ratio/matrices", 0.125F),
                                            std::pair("update_u_rms/matrices", 0.0625F)));
}

TEST_F(EventLogTest, OmitsUnknownAndKeepsNonFiniteNumbers) {
  EventLog events(run_, 0, 0, false);
  MetricsRecord record = record_of(7);
  record.loss = std::nan("");
  record.grad_norm = 1e300;
  events.train(record, {.step_ms = 500, .tokens_per_s = 2000});
  events.eval(8, 1.5, {});
  const std::vector<ReadEvent> read = read_events(file());
  for (const auto& [tag, value] : read[2].scalars) {
    EXPECT_NE(tag, "train/bpb");
    EXPECT_NE(tag, "train/mfu");
    EXPECT_EQ(std::isnan(value), tag == "train/loss");
    EXPECT_EQ(std::isinf(value), tag == "train/grad_norm");
  }
  EXPECT_THAT(read[3].scalars, ElementsAre(std::pair("eval/val_loss", 1.5F)));
}

TEST_F(EventLogTest, ASampleIsValidMarkdownAndUtf8) {
  log()->sample(3, "to *be*\n\x1b\xff or");
  EXPECT_EQ(read_events(file()).back().texts,
            (std::map<std::string, std::string>{{"sample", "    to *be*\n    ?? or"}}));
}

TEST_F(EventLogTest, HasTheConfigurationAsTextAndAsHparams) {
  log()->configuration("depth = 4\n", {{"depth", 4.0}});
  const std::vector<ReadEvent> events = read_events(file());
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[2].texts.at("config"), "    depth = 4\n    ");
  EXPECT_THAT(events[3].hparams.at("_hparams_/session_start_info"), HasSubstr("depth"));
}

TEST_F(EventLogTest, HparamsAreWhatIsTrained) {
  TrainOptions options;
  options.optimizer.matrix_lr = 0.1;
  options.model.preset = ModelPreset::kPlain;
  options.numbers.deterministic = true;
  const std::vector<Hparam> hparams = hparams_of(options);
  const auto value = [&](std::string_view name) -> HparamValue {
    const auto found = std::ranges::find(hparams, name, &Hparam::first);
    return found == hparams.end() ? HparamValue("none") : found->second;
  };
  EXPECT_EQ(value("matrix-lr"), HparamValue(0.1));
  EXPECT_EQ(value("model"), HparamValue("plain"));
  EXPECT_EQ(value("deterministic"), HparamValue(true));
  EXPECT_EQ(value("seed"), HparamValue(42.0));
  EXPECT_EQ(value("log-every"), HparamValue("none"));
  EXPECT_EQ(value("target-flops"), HparamValue("none")) << "it is automatic";
}

TEST_F(EventLogTest, FilesOfARunAreReadInTheOrderOfTheirAttempts) {
  // These files were written with a clock that was ahead, or by other programs.
  test::write_file(run_ / "events.out.tfevents.9000000000.a.1", "");
  test::write_file(run_ / "events.out.tfevents.backup", "");
  for (const std::int64_t step : {0, 10, 20})
    log(step)->eval(step, 1, {});
  std::vector<fs::path> files = event_files(run_);
  ASSERT_EQ(files.size(), 5U);
  for (int i = 1; i <= 3; ++i) {
    const fs::path& file = files[static_cast<std::size_t>(i)];
    EXPECT_THAT(file.filename().string(),
                AllOf(testing::StartsWith(fmt::format("events.out.tfevents.900000000{}.", i)),
                      testing::EndsWith(fmt::format(".{}", getpid()))));
    EXPECT_EQ(read_events(file).back().step, 10 * (i - 1));
  }
}

TEST_F(EventLogTest, AMissingDirectoryIsAnImmediateError) {
  EXPECT_THAT(test::message_of<Error>([&] { const EventFile file(run_ / "no"); }),
              AllOf(HasSubstr("cannot write"), HasSubstr("No such file or directory")));
}

TEST_F(EventLogTest, AnEventIsWrittenCompletelyOrNotAtAll) {
  EventFile events(run_);
  const std::string text = text_event({1, 1}, "sample", std::string(100, 'x'));
  events.write(text);
  const auto whole = fs::file_size(file());
  {
    const FileSizeLimit limit(whole + 50);
    EXPECT_THAT(test::message_of<Error>([&] { events.write(text); }),
                AllOf(HasSubstr("cannot write " + file().string()), HasSubstr("File too large")));
  }
  EXPECT_EQ(fs::file_size(file()), whole);
  events.write(text);
  EXPECT_EQ(read_events(file()).size(), 3U);
}

TEST_F(EventLogTest, TheLoggerWritesTheNumbersOfMetrics) {
  LoggerOptions options = logger(log());
  options.log_every = 30;
  Logger logger(options);
  for (std::int64_t step = 0; step < 100; ++step) {
    logger.train(record_of(step), 500);
    if (step == 50) logger.eval(step, 2, 2.5);
    if (step == 51) logger.sample(step, "to be");
  }
  logger.close();
  std::vector<std::int64_t> steps;
  for (const ReadEvent& event : read_events(file()))
    steps.push_back(event.step);
  EXPECT_THAT(steps, ElementsAre(0, 0, 0, 30, 50, 51, 60, 90, 99));
  const Curves curves = test::shown_curves(run_, test::Forgets::kAtStart);
  EXPECT_THAT(curves.at("eval/val_bpb"), ElementsAre(std::pair(50, 2.5F)));
  EXPECT_EQ(curves.at("train/tokens_per_s").front().second, 2000);
}

// metrics.jsonl is on another disk.
TEST_F(EventLogTest, AFullDiskEndsTheRun) {
  LoggerOptions options = logger(log());
  options.metrics = "/dev/null";
  Logger logger(options);
  const FileSizeLimit limit(fs::file_size(file()) + 10);
  logger.train(record_of(0), 1);
  EXPECT_THAT(test::message_of<Error>([&] { logger.close(); }),
              AllOf(HasSubstr("cannot write " + file().string()), HasSubstr("File too large")));
}

TEST_F(EventLogTest, AFullDiskIsAWarningIfItMayFail) {
  LoggerOptions options = logger(log(0, /*may_fail=*/true));
  options.metrics = "/dev/null";
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  options.terminal = ends[1];
  {
    Logger logger(options);
    {
      const FileSizeLimit limit(fs::file_size(file()) + 10);
      logger.train(record_of(0), 1);
      logger.eval(1, 2, 3);
      logger.flush();
    }
    logger.eval(2, 2, 3);
    logger.close();
  }
  close(ends[1]);
  std::string said(1 << 12, '\0');
  said.resize(static_cast<std::size_t>(read(ends[0], said.data(), said.size())));
  close(ends[0]);
  EXPECT_THAT(said, HasSubstr("warning: cannot write " + file().string() + ": File too large"));
  EXPECT_EQ(said.find("warning"), said.rfind("warning")) << "once";
  const std::vector<ReadEvent> events = read_events(file());
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2].step, 2);
}

}  // namespace
}  // namespace muo::trainer
