// Compares the memory of a training process on the host with the prediction of `plan`.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/check.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"
#include "support/sanitized.h"

namespace muo::test {
namespace {

// The peak resident memory in bytes of the program with these arguments; -1: the program failed.
double peak_bytes(const std::string& arguments) {
  const std::string command =
      "exec " + program() + " " + arguments + " >/dev/null 2>&1";  // no shell process
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child || status != 0) return -1;
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

void write_training_text(const std::string& file) {
  std::ofstream text(file);
  for (int i = 0; i < 20000; ++i)
    text << "line " << i << " of some text\n";
}

TEST(ProcessMemory, IsWithinThreePercentOfThePlan) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger";
  const TemporaryDirectory directory;
  const std::string path = directory.path();
  write_training_text(path + "/text.txt");
  int runs = 0;
  for (const char* options :
       {"--devices 1", "--devices 2 --save-every 5", "--devices 2 --dtype bf16"}) {
    const std::string run = std::string(options) +
                            " --backend host --model plain --n-layer 6 --n-embd 384 --n-head 6 "
                            "--max-seq-len 256 --device-batch-size 12 --total-batch-size 6144 "
                            "--num-iterations 1 --eval-every -1 --sample-every -1 --data " +
                            path + "/text.txt";
    const Outcome plan = run_program("plan --json " + run);
    ASSERT_EQ(plan.code, 0) << plan.err;
    const auto want = nlohmann::json::parse(plan.out)["process_bytes"].get<double>();
    const double got = peak_bytes(concat("train --out ", path, "/run", ++runs, " ", run));
    EXPECT_LE(std::abs(got - want), 0.03 * want) << options << ": " << got << " of " << want;
  }
}

// Without a limit the run takes 490 MB, and 570 MB with background saves.
TEST(ProcessMemory, StaysUnderTheLimitThatIsGiven) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory is larger";
  const TemporaryDirectory directory;
  const std::string path = directory.path();
  write_training_text(path + "/text.txt");
  const std::string run =
      " --backend host --devices 1 --model plain --n-layer 6 --n-embd 384 --n-head 6 "
      "--max-seq-len 256 --device-batch-size 12 --total-batch-size 3072 --num-iterations 1 "
      "--eval-every -1 --sample-every -1 --save-every 1 --data " +
      path + "/text.txt --memory-limit ";
  for (const auto& [limit, bytes] : {std::pair{"420MB", 420e6}, {"340MB", 340e6}}) {
    const Outcome plan = run_program("plan --json" + run + limit);
    ASSERT_EQ(plan.code, 0) << plan.err;
    const auto recompute = nlohmann::json::parse(plan.out)["recompute"];
    EXPECT_GT(recompute["block_layers"].get<int>() + recompute["mlp_layers"].get<int>(), 0);
    const double got = peak_bytes(concat("train --out ", path, "/", limit, run, limit));
    EXPECT_GT(got, 0);
    EXPECT_LE(got, bytes) << limit;
  }
  const Outcome refused = run_program("train --out " + path + "/none" + run + "150MB");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("not enough memory"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(path + "/none"));
}

}  // namespace
}  // namespace muo::test
