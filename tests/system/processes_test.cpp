#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/command_line.h"
#include "support/environment.h"
#include "support/eventually.h"
#include "support/paths.h"
#include "system/training_run.h"

// Worlds of several processes started by mpirun.
namespace muo {
namespace {

using testing::HasSubstr;

class Processes : public Training {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(std::filesystem::path(test::program()).parent_path() /
                                 "libmuograph_mpi.so"))
      GTEST_SKIP() << "this build has no libmuograph_mpi.so, as where there is no MPI";
    if (test::run_command("command -v mpirun").code != 0)
      GTEST_SKIP() << "there is no mpirun: apt-get install openmpi-bin";
  }

  static constexpr const char* kMpirun =
      "mpirun --oversubscribe --bind-to none $([ $(id -u) = 0 ] && echo --allow-run-as-root)";

  // Starts one process for each entry of `devices`, with that number of devices; more[p] is
  // appended to the options of process p.
  [[nodiscard]] std::string launch(const std::string& out, const std::vector<int>& devices,
                                   const std::string& options_of_all,
                                   const std::vector<std::string>& more = {}) const {
    std::string command = kMpirun;
    for (std::size_t p = 0; p < devices.size(); ++p)
      command += concat(p == 0 ? "" : " :", " -n 1 ", test::program(), " ",
                        options(out, concat(options_of_all, " --devices ", devices[p], " ",
                                            p < more.size() ? more[p] : "")));
    return command;
  }
  [[nodiscard]] test::Outcome train_in(const std::string& out, const std::vector<int>& devices,
                                       const std::string& options_of_all = "") const {
    return test::run_command(launch(out, devices, options_of_all));
  }
};

TEST_F(Processes, OfAnySplitTrainTheSameBits) {
  for (const std::string more : {"", "--shard weights", "--strategy ddp --dtype bf16",
                                 "--strategy parallel --shard gradients --recompute block"}) {
    const std::string one = concat("one", more.size());
    train(one, more + " --devices 4 --save-every 10 --device-batch-size 2 --replicas " +
                   (more.find("weights") == std::string::npos ? "own" : "sharded"));
    for (const std::vector<int>& devices :
         more.empty() ? std::vector<std::vector<int>>{{2, 2}, {1, 1, 1, 1}, {1, 3}}
                      : std::vector<std::vector<int>>{{2, 2}}) {
      const std::string out = concat("split", more.size(), "_", devices.size(), devices[0]);
      const test::Outcome outcome =
          train_in(out, devices, more + " --save-every 10 --device-batch-size 2");
      ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
      EXPECT_EQ(losses(out), losses(one));
      for (const int step : {10, 20})
        for (const char* file : {"model.safetensors", "optimizer.safetensors", "manifest.json"})
          EXPECT_TRUE(test::read_file(trainer::checkpoint_directory(path(out), step) / file) ==
                      test::read_file(trainer::checkpoint_directory(path(one), step) / file))
              << more << ", step " << step << ": " << file;
      const auto evaluations = metrics(out, "eval"), expected = metrics(one, "eval");
      ASSERT_EQ(evaluations.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(evaluations[i]["val_loss"], expected[i]["val_loss"]);
    }
  }
}

// Process 0 sends the name of the run's directory to the others.
TEST_F(Processes, TrainInAFolderWhoseNameIsNotUtf8) {
  const std::filesystem::path folder = path("caf\xE9");
  std::filesystem::create_directory(folder);
  std::string command = options("run", "--devices 1 --save-every 10");
  const std::string run = path("run").string();
  command.replace(command.find(run), run.size(), "run");
  for (const char* const more : {"", " --resume auto --num-iterations 21"}) {
    const test::Outcome outcome = test::run_command(concat(
        "cd '", folder.native(), "' && ", kMpirun, " -n 2 ", test::program(), " ", command, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  }
}

TEST_F(Processes, HaveTheirOwnLogs) {
  const test::Outcome outcome = train_in("run", {1, 1});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("world: 2 ranks in 2 processes started by mpirun"));
  EXPECT_THAT(test::read_file(path("run") / "output.1.log"), HasSubstr("here rank 1"));
  EXPECT_FALSE(std::filesystem::exists(path("run") / "output.2.log"));
}

TEST_F(Processes, ResumeARunOfOneProcessAndViceVersa) {
  train("whole", "--devices 2 --save-every 10 --replicas own");
  const auto from = [&](const std::string& run) {
    return "--resume " + (path(run) / "checkpoints/step_00000010").string();
  };
  ASSERT_EQ(train_in("two", {1, 1}, from("whole")).code, 0);
  EXPECT_TRUE(tensors("two", 20) == tensors("whole", 20));
  ASSERT_EQ(train_in("split", {1, 1}, "--save-every 10").code, 0);
  train("joined", from("split") + " --devices 2");
  EXPECT_TRUE(tensors("joined", 20) == tensors("whole", 20));
}

// Automatic rows per device depend on the current devices.
TEST_F(Processes, OfAnyNumberResumeARunOfOne) {
  const std::string more =
      "--device-batch-size auto --total-batch-size 256 --warmdown-ratio 0 --weight-decay 0 "
      "--num-iterations ";
  train("run", more + "4 --devices 2");
  train("whole", more + "12 --devices 2");
  const std::string resume =
      concat("train --resume ", path("run").string(), " --eval-every -1 --num-iterations ");
  const auto goes_on = [&](const test::Outcome& outcome, std::size_t steps, int rows) {
    ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr(concat("step: 256 tokens: 4 x ", rows, " rows of 32")));
    const std::vector<double> is = losses("run"), want = losses("whole");
    ASSERT_EQ(is.size(), steps);
    for (std::size_t step = 0; step < steps; ++step)
      EXPECT_NEAR(is[step], want[step], 1e-3) << step;
    EXPECT_EQ(metrics("run", "train").back()["tokens"], 256 * steps);
  };
  goes_on(
      test::run_command(concat(kMpirun, " -n 4 ", test::program(), " ", resume, "8 --devices 1")),
      8, 2);
  goes_on(test::run_program(resume + "12 --process-per-device --devices 4"), 12, 2);
}

TEST_F(Processes, WithDifferentOptionsEndBeforeAnyWork) {
  const test::Outcome outcome =
      test::run_command(launch("run", {1, 1}, "", {"--max-grad-norm 1", "--max-grad-norm 2"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("processes differ in --"));
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

// The calls of each operation per device, by name and shape.
std::map<std::string, double> operations_of(const nlohmann::json& bench) {
  std::map<std::string, double> out;
  for (const nlohmann::json& row : bench["operations"]["rows"])
    out[concat(row["phase"], " ", row["operation"], " ", row["shape"])] +=
        row["calls"].get<double>();
  return out;
}

TEST_F(Processes, MeasureTheStepsOfAllRanks) {
  const std::string run =
      " --depth 2 --n-head 2 --vocab-size 256 --max-seq-len 32 --steps 2 --json";
  const std::string mpirun = concat(kMpirun, " -n 2 ");
  const auto bench = [&](const std::string& launcher, const std::string& what,
                         const std::string& devices) {
    const test::Outcome outcome = test::run_command(
        concat(launcher, test::program(), " bench ", what, run, " --devices ", devices));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const nlohmann::json one = bench("", "step", "2 --replicas own");
  const nlohmann::json two = bench(mpirun, "step", "1");
  EXPECT_EQ(two["processes"], 2);
  EXPECT_EQ(two["comm"], "mpi");
  EXPECT_EQ(operations_of(two), operations_of(one));
  for (const auto& [phase, ms] : one["phases_ms"].items())
    EXPECT_EQ(two["phases_ms"][phase].size(), ms.size());
  for (const double ms : two["phases_ms"]["backward"])
    EXPECT_GT(ms, 0);
  const nlohmann::json optimizer = bench(mpirun, "optimizer", "1 --strategy balanced");
  ASSERT_EQ(optimizer["strategies"].size(), 1);
  for (const double ms : optimizer["strategies"][0]["exposed_communication_ms_by_rank"])
    EXPECT_GT(ms, 0);
}

TEST_F(Processes, AreForTrainingAndMeasuringOnly) {
  const test::Outcome outcome =
      test::run_command(concat(kMpirun, " -n 2 ", test::program(), " plan --depth 2"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("plan: mpirun has started 2 processes, but"));
}

TEST_F(Processes, OnCpusWithoutMpiAreRejected) {
  const test::Outcome outcome =
      test::run_command("RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 " + test::program() +
                        " " + options("run", "--devices 1"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("torchrun has not started MPI"));
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Processes, OneCommandStartsOnePerDevice) {
  train("one", "--devices 2");
  const test::Outcome outcome =
      test::run_program(options("each", "--devices 2 --process-per-device"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(losses("each"), losses("one"));
}

TEST_F(Processes, OfOneCommandStopOnASignalWithACheckpoint) {
  const std::string more = "--devices 2 --process-per-device --num-iterations 400 --eval-every -1 ";
  train("undisturbed", "--devices 2 --num-iterations 400 --eval-every -1");
  const std::string metrics = (path("run") / "metrics.jsonl").string();
  const test::Outcome stopped =
      test::run_program(options("run", more) + " & pid=$!; " +
                        test::until("[ -s " + metrics + " ]") + "kill -TERM $pid; wait $pid");
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err << stopped.out;
  EXPECT_THAT(test::read_file(path("run") / "output.log"),
              HasSubstr("stopping, with a checkpoint"));
  const test::Outcome outcome = test::run_program(options("run", more + "--resume auto"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(tensors("run", 400) == tensors("undisturbed", 400));
}

// Hexadecimal addresses of the TCP sockets on which a process listens.
std::vector<std::string> listens_on(const std::string& process) {
  namespace fs = std::filesystem;
  std::vector<std::string> inodes, out;
  std::error_code gone;
  for (const auto& file : fs::directory_iterator("/proc/" + process + "/fd", gone))
    inodes.push_back(fs::read_symlink(file.path(), gone).string());
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::vector<std::string> word(10);
      for (std::string& each : word)
        words >> each;
      if (word[3] == "0A" && std::ranges::count(inodes, "socket:[" + word[9] + "]") > 0)
        out.push_back(word[1].substr(0, word[1].find(':')));
    }
  }
  return out;
}

// Processes of this program that descend from `parent`, by /proc.
std::vector<std::string> processes_of(int parent) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> parents;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream status(entry.path() / "status");
    for (std::string word; status >> word;)
      if (word == "PPid:") status >> parents[entry.path().filename().string()];
  }
  std::vector<std::string> out;
  std::error_code gone;
  for (const auto& [process, of] : parents) {
    std::string above = of;
    while (above != std::to_string(parent) && parents.contains(above))
      above = parents[above];
    if (above == std::to_string(parent) &&
        fs::read_symlink("/proc/" + process + "/exe", gone).filename() == "muograph")
      out.push_back(process);
  }
  return out;
}

TEST_F(Processes, OfOneHostListenOnItsLoopbackOnly) {
  test::RunningProgram program(test::words_of(
      options("run", "--devices 2 --process-per-device --num-iterations 1000000 --eval-every -1")));
  ASSERT_TRUE(test::eventually([&] {
    std::error_code none;
    return std::filesystem::file_size(path("run") / "metrics.jsonl", none) > 0 && !none;
  }));
  const std::vector<std::string> processes = processes_of(program.pid());
  EXPECT_EQ(processes.size(), 2U);
  std::vector<std::string> addresses;
  for (const std::string& process : processes)
    std::ranges::move(listens_on(process), std::back_inserter(addresses));
  EXPECT_THAT(addresses, testing::ElementsAre("0100007F")) << "process 0, for the launch";
  EXPECT_EQ(program.end_by(SIGTERM), 128 + SIGTERM);
}

// mpirun ends the other processes at once, so this checks the files that they leave rather than
// their messages.
TEST_F(Processes, OfWhichOneIsKilledLeaveACheckpointToResume) {
  const std::string more = "--save-every 2 --num-iterations 400";
  train("undisturbed", more + " --devices 2 --keep-last 2");
  const std::filesystem::path checkpoint = trainer::checkpoint_directory(path("run"), 6);
  const test::Outcome killed = test::run_command(launch("run", {1, 1}, more) + " & pid=$!; " +
                                                 test::until("[ -d " + checkpoint.string() + " ]") +
                                                 "kill -0 $pid && pkill -KILL -f -n -- '--out " +
                                                 path("run").string() + "'; wait $pid");
  EXPECT_NE(killed.code, 0);
  ASSERT_TRUE(std::filesystem::exists(checkpoint)) << killed.err << killed.out;
  const test::Outcome outcome = train_in("run", {1, 1}, more + " --resume auto");
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_TRUE(tensors("run", 400) == tensors("undisturbed", 400));
  EXPECT_EQ(losses("run"), losses("undisturbed"));
}

class SlowProcesses : public Processes {
 protected:
  void SetUp() override {
    if (!test::environment("MUO_SLOW")) GTEST_SKIP() << "a minute; scripts/test.sh --slow runs it";
    Processes::SetUp();
  }
};

TEST_F(SlowProcesses, KilledTwentyTimesEndAsTheUndisturbedRun) {
  constexpr int kSteps = 20'000;
  const std::string more = concat("--save-every 50 --keep-last 3 --num-iterations ", kSteps);
  train("undisturbed", more + " --devices 2 --replicas own");
  std::mt19937 random(20);
  for (int kill = 0; kill < 20; ++kill) {
    const double seconds = std::uniform_real_distribution(0.3, 1.2)(random);
    const std::string run = concat("--out ", path("run").string(), " ");
    const std::string one = concat(random() % 2 == 0 ? "-n -f -- '" : "-o -f -- '^mpirun.*", run);
    static_cast<void>(test::run_command(concat(
        launch("run", {1, 1}, more + " --resume auto"), " & sleep ", seconds, "; pkill -KILL ", one,
        "'; wait $!; while pgrep -f -- '", run, "' | grep -qv $$; do sleep 0.1; done")));
  }
  const test::Outcome outcome = train_in("run", {1, 1}, more + " --resume auto");
  ASSERT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_TRUE(tensors("run", kSteps) == tensors("undisturbed", kSteps));
  EXPECT_EQ(losses("run"), losses("undisturbed"));
}

TEST(OneProcess, RejectsOptionsForSeveral) {
  const test::TemporaryDirectory directory;
  test::write_text(directory.path() / "text.txt", 900);
  const std::string train = "train --data " + (directory.path() / "text.txt").string() + " --out " +
                            (directory.path() / "run").string() + " ";
  const test::Outcome mpi = test::run_program(train + "--comm mpi");
  EXPECT_EQ(mpi.code, 2);
  EXPECT_THAT(mpi.err, HasSubstr("needs several processes"));
  const test::Outcome missing = test::run_program(
      train + "--devices 1", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 PMIX_RANK=0");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("MASTER_ADDR"));
}

}  // namespace
}  // namespace muo
