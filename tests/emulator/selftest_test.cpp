// Tests that the emulator tier catches bugs. Each case of selftest/ runs in a separate process,
// under the schedules and sanitizers below: the version with the bug under those that must detect
// it, and the correct version under all, none of which may report anything.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cctype>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "base/check.h"

namespace muo::test {
namespace {

constexpr int kSeeds = 8;

// How many of the random schedules detect a bug.
enum class Seeds { kNone, kSome, kAll };

struct Expectation {
  const char* name;
  // The optimised program: orders that must detect the bug, and the expected output. If none must,
  // the version with the bug does not run, as its results may be right, wrong or a crash.
  bool forward = false, reverse = false;
  Seeds seeds = Seeds::kNone;
  const char* plain = "";
  // AddressSanitizer with UBSan, and ThreadSanitizer with two workers.
  const char* address = "";
  const char* thread = "";
};

// GoogleTest requires this name.
void PrintTo(const Expectation& tested,  // NOLINT(readability-identifier-naming)
             std::ostream* out) {
  *out << tested.name;
}

constexpr const char* kWrong = "wrong result";
constexpr const char* kRace = "ThreadSanitizer: data race";

const Expectation kExpectations[] = {
    {.name = "barrier missing after writing",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kSome,
     .plain = kWrong,
     .thread = kRace},
    {.name = "barrier missing before reuse",
     .forward = true,
     .seeds = Seeds::kSome,
     .plain = kWrong,
     .thread = kRace},
    {.name = "sum in shared memory without atomics", .thread = kRace},
    {.name = "sum across blocks without atomics", .thread = kRace},
    {.name = "no __syncwarp",
     .forward = true,
     .seeds = Seeds::kAll,
     .plain = kWrong,
     .thread = kRace},
    {.name = "barriers in two branches",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: threads of a block wait at different barriers",
     .address = "simt: threads of a block wait at different barriers",
     .thread = "simt: threads of a block wait at different barriers"},
    {.name = "barrier of half a block",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: threads of a block wait at different barriers"},
    {.name = "full mask, half a warp",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: lanes of a warp meet at different collectives"},
    {.name = "shuffle from a lane that left",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: deadlock"},
    {.name = "last writer is expected to win",
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = kWrong,
     .thread = kRace},
    {.name = "blocks in the order of their numbers",
     .reverse = true,
     .seeds = Seeds::kSome,
     .plain = kWrong,
     .thread = kRace},
    {.name = "what a kernel itself finds wrong",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: __trap()"},
    {.name = "beyond dynamic shared memory", .address = "AddressSanitizer: use-after-poison"},
    {.name = "beyond static shared memory", .address = "runtime error: index"},
    {.name = "reading beyond global memory", .address = "AddressSanitizer: heap-buffer-overflow"},
    {.name = "misaligned access of 16 bytes", .address = "misaligned address"},
    {.name = "reading unwritten dynamic shared memory",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = kWrong,
     .address = kWrong,
     .thread = kWrong},
    {.name = "reading unwritten static shared memory",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = kWrong,
     .address = kWrong,
     .thread = kWrong},
    {.name = "wait for one copy too few",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = kWrong},
    {.name = "double buffer without its last barrier",
     .seeds = Seeds::kSome,
     .plain = kWrong,
     .thread = kRace},
    {.name = "barrier initialised without a fence",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a copy is started at a barrier that was initialised without"},
    {.name = "barrier used before it is initialised",
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a barrier is used before it is initialised"},
    {.name = "copy used before it has arrived",
     .forward = true,
     .seeds = Seeds::kSome,
     .plain = kWrong,
     .thread = kRace},
    {.name = "phase that never ends",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: deadlock"},
    {.name = "product without begin_products",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a product without begin_products()"},
    {.name = "sums that begin_products is not told",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a product adds to sums of which begin_products() was not told"},
    {.name = "sums written after begin_products",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: sums are written between begin_products() and their products"},
    {.name = "sums read before the wait",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = kWrong},
    {.name = "sums written before the wait",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: sums are written before a wait for their products names them"},
    {.name = "wait for one group too few",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a wait names sums of products for which it does not wait"},
    {.name = "operand overwritten before the wait",
     .forward = true,
     .seeds = Seeds::kSome,
     .plain = "simt: a product reads byte "},
    {.name = "product of stores without a fence",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a product reads byte "},
    {.name = "copy over stores without a fence",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a copy overwrites byte "},
    {.name = "copy into a tile in use",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = kWrong,
     .thread = kRace},
    {.name = "warp that has not met",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a warp has not met since this lane started a copy or arrived"},
    {.name = "copy that nobody waits for",
     .forward = true,
     .seeds = Seeds::kSome,
     .plain = "simt: a block ends before a copy has arrived"},
    {.name = "product that nobody waits for",
     .forward = true,
     .reverse = true,
     .seeds = Seeds::kAll,
     .plain = "simt: a thread ends without a wait that names the sums of its products"},
    {.name = "shared memory without opt-in",
     .forward = true,
     .plain = "bytes of dynamic shared memory without opt-in beside 1024"},
    {.name = "more shared memory than a block has",
     .forward = true,
     .plain = "a block has 101376 bytes of shared memory, asked for"},
    {.name = "more registers than a block has",
     .forward = true,
     .plain = "513 threads of 121 registers need 81920"},
    {.name = "more threads than the launch bounds say",
     .forward = true,
     .plain = "129 threads in a block, launch bounds 128"},
    {.name = "more bytes of parameters than a launch takes",
     .forward = true,
     .plain = "32765 bytes of parameters, at most 32764"},
    {.name = "a kernel of which nobody knows what it takes",
     .forward = true,
     .plain = "of_no_table(float*, float const*) is not in "
              "tests/stand_ins/kernel_resources.inc"},
    {.name = "flag between ranks that orders nothing", .thread = kRace},
    // Without a bug.
    {.name = "grids whose blocks wait for each other"},
    {.name = "shuffles"},
    {.name = "votes and reductions"},
    {.name = "block shapes"},
    {.name = "atomics"},
    {.name = "launches at once"},
    {.name = "refused launches"},
};

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string text;
};

Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

// ThreadSanitizer's shadow memory does not support widely randomised addresses.
std::string with_fixed_addresses() {
  static const bool can = run("setarch -R true").code == 0;
  return can ? "setarch -R " : "";
}

enum class Program { kPlain, kAddress, kThread };

Outcome run_case(Program program, const std::string& order, const std::string& name, bool planted) {
  const std::string workers = program == Program::kThread ? "2" : "1";
  // The test looks for the name of the finding only, and symbolizing every address takes long.
  const std::string options = std::string(planted ? "symbolize=0 " : "") +
                              "halt_on_error=1 detect_leaks=1 atexit_sleep_ms=0";
  std::string command = "SIMT_ORDER=" + order + " SIMT_WORKERS=" + workers;
  for (const char* sanitizer : {"ASAN", "TSAN", "UBSAN"})
    command += concat(" ", sanitizer, "_OPTIONS='", options, "'");
  command += " ";
  if (program == Program::kThread) command += with_fixed_addresses();
  command += "'";
  command += program == Program::kPlain     ? MUO_SELFTEST_PLAIN
             : program == Program::kAddress ? MUO_SELFTEST_ADDRESS
                                            : MUO_SELFTEST_THREAD;
  return run(command + "' '" + name + "' " + (planted ? "planted" : "correct"));
}

bool sees(Program program, const std::string& order, const Expectation& bug, const char* as) {
  const Outcome outcome = run_case(program, order, bug.name, true);
  return outcome.code != 0 && outcome.text.find(as) != std::string::npos;
}

class SelfTest : public testing::TestWithParam<Expectation> {};

TEST_P(SelfTest, BugIsSeen) {
  const Expectation& bug = GetParam();
  const auto expect = [&](Program program, const std::string& order, const char* as) {
    EXPECT_TRUE(sees(program, order, bug, as)) << "order " << order << ", expected: " << as;
  };
  if (bug.forward) expect(Program::kPlain, "seq", bug.plain);
  if (bug.reverse) expect(Program::kPlain, "rev", bug.plain);
  int seen = 0;
  for (int seed = 1; seed <= kSeeds && bug.seeds != Seeds::kNone; ++seed)
    seen += sees(Program::kPlain, std::to_string(seed), bug, bug.plain) ? 1 : 0;
  EXPECT_GE(seen, bug.seeds == Seeds::kNone ? 0 : bug.seeds == Seeds::kSome ? 1 : kSeeds);
  for (const char* order : {"1", "2"}) {
    if (*bug.address != '\0') expect(Program::kAddress, order, bug.address);
    if (*bug.thread != '\0') expect(Program::kThread, order, bug.thread);
  }
}

TEST_P(SelfTest, CorrectVersionPasses) {
  std::vector<std::string> orders = {"seq", "rev"};
  for (int seed = 1; seed <= kSeeds; ++seed)
    orders.push_back(std::to_string(seed));
  const auto check = [](Program program, const std::string& order) {
    const Outcome outcome = run_case(program, order, GetParam().name, false);
    EXPECT_EQ(outcome.code, 0) << order << ": " << outcome.text;
    EXPECT_EQ(outcome.text, "") << order;
  };
  for (const std::string& order : orders)
    check(Program::kPlain, order);
  for (const char* order : {"seq", "1"})
    check(Program::kAddress, order);
  for (const char* order : {"1", "2"})
    check(Program::kThread, order);
}

std::string identifier(const testing::TestParamInfo<Expectation>& tested) {
  std::string out;
  for (const char c : std::string(tested.param.name))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  return out;
}
INSTANTIATE_TEST_SUITE_P(Cases, SelfTest, testing::ValuesIn(kExpectations), identifier);

// The table above has every case.
TEST(SelfTestTable, NamesEveryCase) {
  std::string want;
  for (const Expectation& one : kExpectations)
    want += std::string(one.name) + "\n";
  EXPECT_EQ(run("'" MUO_SELFTEST_PLAIN "'").text, want);
}

}  // namespace

}  // namespace muo::test
