#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/environment.h"
#include "support/free_port.h"
#include "support/paths.h"
#include "system/training_run.h"

// Worlds of two processes, each with two GPUs of the SIMT tier (muograph_simt), started as by
// torchrun. The NCCL stand-in sums in an order of its own, which does not depend on the
// distribution of the ranks.
namespace muo {
namespace {

using testing::HasSubstr;

// The hosts of the two processes: the prefix of each command, and the address of process 0.
struct Hosts {
  std::array<std::string, 2> before = {};
  std::string address = "127.0.0.1";
};

class SimtProcesses : public Training {
 protected:
  // `gpus`: number of GPUs of the machine.
  static std::string environment(int gpus) {
    return concat("MUO_CUDA_PLUGIN=muograph_simt CUDA_STAND_IN_GPUS=", gpus);
  }
  [[nodiscard]] std::string command(const std::string& out, const std::string& more) const {
    return test::program() + " " +
           options(out,
                   "--backend cuda --comm nccl --dtype fp32 --gradient-wire fp32 "
                   "--total-batch-size 512 " +
                       more);
  }
  [[nodiscard]] std::filesystem::path said(int process, const char* kind) const {
    return path(concat(kind, process));
  }
  // Starts both processes, runs the shell commands `meanwhile` (with the pids in $p0 and $p1), and
  // waits. Returns the exit codes by process.
  [[nodiscard]] std::vector<int> run_two(const std::string& out, const std::string& more,
                                         int gpus = 4, const std::string& meanwhile = "",
                                         const Hosts& hosts = {}) const {
    const int port = test::free_port() - 1;  // the rendezvous uses the next port
    std::string script;
    for (const int p : {0, 1})
      script += concat(environment(gpus), " RANK=", p, " LOCAL_RANK=", p,
                       " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=", hosts.address,
                       " MASTER_PORT=", port, " ", hosts.before.at(static_cast<std::size_t>(p)),
                       " ", command(out, more), " > ", said(p, "out").string(), " 2> ",
                       said(p, "err").string(), " & p", p, "=$!; ");
    script += meanwhile + " wait $p0; c0=$?; wait $p1; echo $c0 $?";
    std::istringstream codes(test::run_command(script).out);
    std::vector<int> out_codes(2, -1);
    codes >> out_codes[0] >> out_codes[1];
    return out_codes;
  }
  [[nodiscard]] std::string errors_of(int process) const {
    return test::read_file(said(process, "err"));
  }
};

TEST_F(SimtProcesses, TrainTheBitsOfOneProcess) {
  for (const char* more : {"--save-every 10", "--save-every 10 --shard weights"}) {
    const std::string one = concat("one", std::string(more).size());
    const std::string two = concat("two", std::string(more).size());
    const test::Outcome outcome =
        test::run_command(command(one, concat("--devices 4 ", more)), environment(4));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    ASSERT_EQ(run_two(two, concat("--devices 2 ", more)), (std::vector{0, 0}))
        << errors_of(0) << errors_of(1);
    EXPECT_EQ(losses(two).size(), 20U);
    EXPECT_EQ(losses(two), losses(one)) << more;
    for (const int step : {10, 20})
      EXPECT_TRUE(tensors(two, step) == tensors(one, step)) << more << ", step " << step;
  }
}

// Simulates a launcher that shows each process one GPU, the same for all.
TEST_F(SimtProcesses, WithOneGpuBetweenThemAreRefusedUnlessAllAllowIt) {
  const std::string allowed = "env NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_STAND_IN_VERSION=23007";
  for (const Hosts& hosts : {Hosts{}, Hosts{.before = {allowed, ""}}}) {
    EXPECT_EQ(run_two("run", "--devices 1 --resume auto", /*gpus=*/1, "", hosts),
              (std::vector{2, 2}));
    for (const int process : {0, 1})
      EXPECT_THAT(errors_of(process), HasSubstr("--comm nccl: ranks 0 and 1 share GPU "));
  }
  const std::string few = "--num-iterations 4 --devices ";
  ASSERT_EQ(run_two("shared", few + "1", /*gpus=*/1, "", {.before = {allowed, allowed}}),
            (std::vector{0, 0}))
      << errors_of(0) << errors_of(1);
  ASSERT_EQ(test::run_command(command("apart", few + "2"), environment(2)).code, 0);
  EXPECT_EQ(losses("shared"), losses("apart"));
}

// NCCL waits for the killed process; the run does not.
TEST_F(SimtProcesses, OfWhichOneIsKilledEndWithTheCause) {
  for (const int killed : {0, 1}) {
    const std::string out = concat("killed", killed);
    const std::string saved = (path(out) / "checkpoints/step_00000004").string();
    const std::filesystem::path time = path("time");
    const std::vector<int> codes =
        run_two(out, "--devices 2 --num-iterations 100000 --eval-every -1 --save-every 2", 4,
                concat("n=0; until [ -d ", saved,
                       " ] || [ $n = 1200 ]; do n=$((n + 1)); sleep 0.05; done; date +%s > ",
                       time.string(), "; kill -KILL $p", killed, ";"));
    const double seconds =
        static_cast<double>(std::time(nullptr)) - std::stod(test::read_file(time));
    const int other = 1 - killed;
    EXPECT_EQ(codes[static_cast<std::size_t>(killed)], 137);
    EXPECT_EQ(codes[static_cast<std::size_t>(other)], 3) << errors_of(other);
    EXPECT_THAT(errors_of(other), HasSubstr(concat("process ", killed, " (ranks ")));
    EXPECT_LT(seconds, 30);
  }
}

class SlowSimtProcesses : public SimtProcesses {
 protected:
  void SetUp() override {
    if (!test::environment("MUO_SLOW"))
      GTEST_SKIP() << "minutes long; scripts/test.sh --slow runs it";
  }
  // A shell command that waits until the fourth step is saved, for at most a minute.
  [[nodiscard]] std::string await_save(const std::string& out) const {
    return concat("n=0; until [ -d ", (path(out) / "checkpoints/step_00000004").string(),
                  " ] || [ $n = 1200 ]; do n=$((n + 1)); sleep 0.05; done; ");
  }
  static constexpr const char* kEndless =
      "--devices 2 --num-iterations 100000 --eval-every -1 --save-every 2";
};

// A process that is paused for a minute is declared lost by the other one after 20 s, and finds
// this out when it continues.
TEST_F(SlowSimtProcesses, OfWhichOneIsPausedEndWithTheCause) {
  for (int time = 0; time < 5; ++time) {
    const int still = time % 2;
    const std::string out = concat("still", time);
    const std::vector<int> codes = run_two(
        out, kEndless, 4,
        await_save(out) + concat("kill -STOP $p", still, "; sleep 60; kill -CONT $p", still, ";"));
    EXPECT_EQ(codes, (std::vector{3, 3}));
    EXPECT_THAT(errors_of(1 - still), HasSubstr("no heartbeat"));
    EXPECT_THAT(errors_of(1 - still), HasSubstr(concat("process ", still, " (ranks ")));
  }
}

// Two hosts, simulated by network namespaces, and the cable between them.
TEST_F(SlowSimtProcesses, WhoseLinkIsCutEndWithTheCause) {
  const std::string remove = "ip netns del muo0 2>/dev/null; ip netns del muo1 2>/dev/null";
  const test::Outcome made = test::run_command(
      remove +
      "; set -e; for i in 0 1; do ip netns add muo$i; ip -n muo$i link set lo up; done;"
      "ip link add v0 netns muo0 type veth peer name v1 netns muo1;"
      "for i in 0 1; do ip -n muo$i addr add 10.77.0.$((i + 1))/24 dev v$i;"
      " ip -n muo$i link set v$i up; done");
  if (made.code != 0) GTEST_SKIP() << "no network namespaces here: " << made.err;
  for (int time = 0; time < 5; ++time) {
    const std::string out = concat("cut", time);
    const std::vector<int> codes =
        run_two(out, kEndless, 4,
                await_save(out) + concat("ip -n muo", time % 2, " link set v", time % 2, " down;"),
                {.before = {"ip netns exec muo0", "ip netns exec muo1"}, .address = "10.77.0.1"});
    EXPECT_EQ(codes, (std::vector{3, 3}));
    for (const int process : {0, 1})
      EXPECT_THAT(errors_of(process), HasSubstr(concat("process ", 1 - process, " (ranks ")));
    static_cast<void>(
        test::run_command(concat("ip -n muo", time % 2, " link set v", time % 2, " up")));
  }
  static_cast<void>(test::run_command(remove));
}

}  // namespace
}  // namespace muo
