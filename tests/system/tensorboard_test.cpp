#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "support/command.h"
#include "support/environment.h"
#include "support/event_reader.h"
#include "support/files.h"
#include "support/paths.h"
#include "system/training_run.h"

// Compares the event files of whole runs with their metrics.jsonl.
namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Curves;
using test::event_files;
using test::Forgets;
using test::Outcome;
using test::read_events;
using test::ReadEvent;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Tensorboard : public Training {
 protected:
  // The numbers of the log as TensorBoard must show them, except train/bpb, which the log lacks.
  [[nodiscard]] Curves logged(const std::string& out) const {
    const std::map<std::string, std::vector<const char*>> keys = {
        {"train",
         {"loss", "lr_multiplier", "muon_momentum", "muon_weight_decay", "grad_norm", "step_ms",
          "tokens_per_s", "mfu"}},
        {"eval", {"val_loss", "val_bpb"}}};
    Curves curves;
    for (const auto& [kind, names] : keys)
      for (const json& record : metrics(out, kind))
        for (const char* const name : names)
          if (record[name].is_number())
            curves[kind + "/" + name].emplace_back(record["step"],
                                                   static_cast<float>(record[name].get<double>()));
    for (const json& record : metrics(out, "update"))
      for (const auto& [key, value] : record.items())
        for (const std::string kind : {"u_rms", "rms", "ratio"})
          if (value.is_number() && key.ends_with("_" + kind)) {
            const std::string group = key.substr(0, key.size() - kind.size() - 1);
            curves[concat("update_", kind, "/", group)].emplace_back(
                record["step"], static_cast<float>(value.get<double>()));
            break;
          }
    return curves;
  }
  [[nodiscard]] Curves shown(const std::string& out, Forgets how = Forgets::kAtStart) const {
    Curves curves = test::shown_curves(path(out), how);
    const auto bpb = curves.at("train/bpb");
    curves.erase("train/bpb");
    EXPECT_EQ(bpb.size(), curves["train/loss"].size());
    for (std::size_t i = 0; i < bpb.size(); ++i) {  // one byte per token, with few document starts
      const float bits = curves["train/loss"][i].second / std::log(2.0F);
      EXPECT_NEAR(bpb[i].second / bits, 1, 0.01);
    }
    return curves;
  }
  void forget_after(const std::string& out, std::int64_t step) const {
    for (const trainer::FoundCheckpoint& found : trainer::find_checkpoints(path(out)))
      if (found.step > step) fs::remove_all(found.path);
  }
};

TEST_F(Tensorboard, ShowsEveryNumberOfTheLogSamplesAndTheConfiguration) {
  train("run", "--sample-every 10");
  EXPECT_EQ(shown("run"), logged("run"));
  EXPECT_THAT(shown("run").at("train/loss"), SizeIs(20));
  EXPECT_THAT(shown("run").at("eval/val_bpb"), SizeIs(3));
  ASSERT_THAT(event_files(path("run")), SizeIs(1));
  std::map<std::int64_t, std::string> samples;
  std::string config, hparams;
  for (const ReadEvent& event : read_events(event_files(path("run")).front())) {
    if (event.texts.contains("sample")) samples[event.step] = event.texts.at("sample");
    if (event.texts.contains("config")) config = event.texts.at("config");
    if (!event.hparams.empty()) hparams = event.hparams.at("_hparams_/session_start_info");
  }
  EXPECT_THAT(samples, testing::ElementsAre(testing::Key(10), testing::Key(20)));
  EXPECT_GT(samples[20].size(), 200U);
  EXPECT_THAT(config, HasSubstr("\n    matrix-lr = 0.3\n"));
  EXPECT_THAT(hparams, HasSubstr("matrix-lr"));
}

TEST_F(Tensorboard, FollowsLogEvery) {
  train("run", "--log-every 7");
  EXPECT_EQ(shown("run"), logged("run"));
  EXPECT_THAT(shown("run").at("train/loss"), SizeIs(4));
}

TEST_F(Tensorboard, OffWritesNothing) {
  train("run", "--tensorboard off");
  EXPECT_THAT(event_files(path("run")), IsEmpty());
  EXPECT_THAT(metrics("run", "train"), SizeIs(20));
}

// A run killed while it writes leaves complete records and all points of its log.
TEST_F(Tensorboard, AKilledRunLosesNothingOfItsLog) {
  const std::string log = (path("run") / "metrics.jsonl").string();
  const Outcome outcome =
      test::run_program(options("run", "--num-iterations 100000 --eval-every 3 --save-every -1") +
                        " >/dev/null & pid=$!; " +
                        test::until("[ $(wc -l 2>/dev/null <" + log + " || echo 0) -gt 40 ]") +
                        "kill -KILL $pid; wait $pid");
  ASSERT_EQ(outcome.code, 137) << outcome.err;
  const Curves curves = shown("run");
  for (const auto& [tag, points] : logged("run")) {
    ASSERT_LE(points.size(), curves.at(tag).size());
    EXPECT_TRUE(std::equal(points.begin(), points.end(), curves.at(tag).begin())) << tag;
  }
}

// The second attempt repeats steps of the first. TensorBoard's readers show none of them twice, and
// keep the evaluation at the checkpoint, which is not repeated.
TEST_F(Tensorboard, AResumedRunIsOneCurve) {
  const std::string run = "--save-every 5 --eval-every 5 --num-iterations 20 ";
  train("run", run);
  forget_after("run", 10);
  train("run", run + "--resume auto");
  const std::vector<fs::path> files = event_files(path("run"));
  ASSERT_THAT(files, SizeIs(2));
  const ReadEvent start = read_events(files[1]).at(1);
  EXPECT_TRUE(start.starts);
  EXPECT_EQ(start.step, 10);
  EXPECT_THAT(logged("run").at("train/loss"), SizeIs(20));
  EXPECT_THAT(logged("run").at("eval/val_loss"), SizeIs(5));
  EXPECT_EQ(shown("run"), logged("run"));
  EXPECT_EQ(shown("run", Forgets::kPerTag), logged("run"));
}

// A run that was killed before its first checkpoint starts again.
TEST_F(Tensorboard, ARestartedRunIsOneCurve) {
  train("run");
  forget_after("run", 0);
  train("run", "--num-iterations 15 --resume auto");
  EXPECT_THAT(event_files(path("run")), SizeIs(2));
  EXPECT_EQ(shown("run"), logged("run"));
  EXPECT_EQ(shown("run", Forgets::kPerTag), logged("run"));
}

// Uses TensorBoard's own readers, if installed.
TEST_F(Tensorboard, ItsPackageReadsARun) {
  const std::string python = test::environment("MUO_TEST_PYTHON").value_or("python3");
  if (test::run_command(python + " -c 'import tensorboard'").code != 0)
    GTEST_SKIP() << python << " has no package tensorboard: pip install tensorboard, or say with "
                 << "MUO_TEST_PYTHON which python has it";
  const std::string run = "--save-every 5 --eval-every 5 --sample-every 5 ";
  train("run", run);
  forget_after("run", 10);
  train("run", run + "--resume auto");
  const std::string check =
      python + " " + test::source_directory() + "/scripts/check_tensorboard.py ";
  const Outcome good = test::run_command(check + path("run").string());
  EXPECT_EQ(good.code, 0) << good.err << good.out;
  EXPECT_THAT(good.out, HasSubstr("20 steps, 5 evaluations"));
  // The script detects a changed number.
  std::string lines = test::read_file(path("run") / "metrics.jsonl");
  lines.insert(lines.find("\"loss\":") + 7, "1");
  test::write_file(path("run") / "metrics.jsonl", lines);
  const Outcome bad = test::run_command(check + path("run").string());
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.err, HasSubstr("train/loss"));
}

}  // namespace
}  // namespace muo
