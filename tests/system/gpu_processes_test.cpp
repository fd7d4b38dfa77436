#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/free_port.h"
#include "support/paths.h"
#include "system/training_run.h"

// Worlds of two processes with two GPUs each of the SIMT tier (muograph_simt), as torchrun starts
// them. Sums of NCCL's stand-in have an order of their own, the same whoever holds the ranks.
namespace muo {
namespace {

using testing::HasSubstr;

class SimtProcesses : public Training {
 protected:
  // `gpus`: of the machine.
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
  // Starts both, runs `meanwhile` beside them, a shell's commands that know their pids as $p0 and
  // $p1, and waits. Their exit codes, by process.
  [[nodiscard]] std::vector<int> run_two(const std::string& out, const std::string& more,
                                         int gpus = 4, const std::string& meanwhile = "") const {
    const int port = test::free_port() - 1;  // what they meet at is the next
    std::string script;
    for (const int p : {0, 1})
      script += concat(environment(gpus), " RANK=", p, " LOCAL_RANK=", p,
                       " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=", port,
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

// As where a launcher shows each its own, but it is the same.
TEST_F(SimtProcesses, WithOneGpuBetweenThemAreRefused) {
  EXPECT_EQ(run_two("run", "--devices 1", /*gpus=*/1), (std::vector{2, 2}));
  for (const int process : {0, 1})
    EXPECT_THAT(errors_of(process), HasSubstr("--comm nccl: ranks 0 and 1 share GPU "));
}

// NCCL waits for it; the run does not.
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

}  // namespace
}  // namespace muo
