// Signals while the program works: which thread handles them, and what happens to the work.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/philox.h"
#include "support/checkpoint_state.h"
#include "support/command_line.h"
#include "support/environment.h"
#include "support/eventually.h"
#include "support/files.h"
#include "support/program.h"
#include "support/sanitized.h"
#include "system/training_run.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::run_program;
using test::words_of;
using testing::AllOf;
using testing::HasSubstr;

// LD_PRELOAD names the library without its folder, because the loader would treat a space in the
// path as its end.
const fs::path kProfiler = MUO_PROFILING_TIMER;

// The signals that each thread of a process blocks, as bits counted from 1.
std::vector<std::uint64_t> blocked_signals(int process) {
  std::vector<std::uint64_t> out;
  std::error_code ended;
  for (const auto& thread : fs::directory_iterator(fmt::format("/proc/{}/task", process), ended)) {
    std::ifstream status(thread.path() / "status");
    for (std::string word; status >> word;)
      if (word == "SigBlk:") status >> std::hex >> out.emplace_back();
  }
  return out;
}

class Signals : public Training {
 protected:
  // A run whose products are so large that oneDNN uses its own workspace.
  [[nodiscard]] std::string large(const std::string& out, const std::string& more = "") const {
    return options(out, "--n-embd 128 --depth 2 " + more);
  }
  // Results of the profiler for a program that completed under it: the number of signals, and how
  // many of them were handled by threads other than the first.
  struct Profile {
    int signals = 0, elsewhere = 0;
  };
  Profile profiled(const std::string& arguments, std::string* output = nullptr) {
    const std::string file = path("profile");
    fs::remove(file);
    const Outcome outcome = run_program(
        arguments,
        fmt::format("LD_LIBRARY_PATH='{}' LD_PRELOAD={} PROFILING_TIMER_FILE={}",
                    kProfiler.parent_path().native(), kProfiler.filename().native(), file));
    EXPECT_EQ(outcome.code, 0) << arguments << outcome.err;
    if (output != nullptr) *output = outcome.out;
    Profile out;
    std::ifstream(file) >> out.signals >> out.elsewhere;
    return out;
  }
  // Starts the command in the background, waits for the first steps of the run, runs `then` with
  // the process in $pid, and waits for the end of the process.
  [[nodiscard]] Outcome in_steps(const std::string& out, const std::string& more,
                                 const std::string& then, const std::string& before = "") const {
    return run_program(options(out, more) + " >/dev/null & pid=$!; " +
                           test::until("[ -s " + (path(out) / "metrics.jsonl").string() + " ]") +
                           then + "; wait $pid",
                       before);
  }
};

TEST_F(Signals, AreHandledByOneThreadThatDoesNotCompute) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "it has a thread of its own, which blocks all";
  train("large", "--n-embd 256 --depth 4 --num-iterations 1 --eval-every -1");
  test::write_text(path("long"), 20'000);
  const std::string run = " --num-iterations 1000000 --eval-every -1 ";
  std::string sweep = options("sweep", run + "--matrix-lr 0.1,0.2,0.3");
  sweep.replace(0, std::string("train").size(), "sweep");
  struct Case {
    std::string command;
    std::size_t threads;  // number while all of them work
  };
  for (const Case& c :
       {Case{options("train", run), 6}, Case{sweep, 8},
        Case{"bench step --model plain --n-layer 1 --n-embd 32 --n-head 2 --max-seq-len 16 "
             "--device-batch-size 2 --total-batch-size 128 --devices 2 --steps 1048576",
             5},
        Case{fmt::format("eval {} --data {} --eval-tokens 400000", path("large").string(),
                         path("long").string()),
             4},
        Case{fmt::format("sample {} --num-samples 1000", path("large").string()), 4}}) {
    const test::RunningProgram program(words_of(c.command));
    std::vector<std::uint64_t> blocked;
    const auto blocking = [&](int signal) {
      return std::ranges::count_if(
          blocked, [&](std::uint64_t set) { return ((set >> (signal - 1)) & 1) != 0; });
    };
    // Threads are read one after the other, so read them twice: the first may be read before it
    // blocks the signals whose mask the last inherits. A thread blocks all of them while it starts.
    std::size_t before = 0;
    ASSERT_TRUE(test::eventually([&] {
      before = blocked.size();
      blocked = blocked_signals(program.pid());
      return before >= c.threads && blocked.size() >= c.threads && blocking(SIGSEGV) == 0;
    })) << c.command
        << ": " << blocked.size() << " threads";
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCHLD,
                             SIGXFSZ, SIGVTALRM, SIGPROF, SIGIO, SIGRTMIN, SIGRTMAX})
      EXPECT_EQ(blocking(signal), std::ssize(blocked) - 1)
          << "signal " << signal << ": " << c.command;
    for (const int signal : {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV})
      EXPECT_EQ(blocking(signal), 0) << "signal " << signal << ": " << c.command;
  }
}

// Handlers on computing threads would overwrite the heap, which crashes the run.
TEST_F(Signals, OfAProfilerChangeNothing) {
  if (test::kAddressSanitizer) GTEST_SKIP() << "its library has to be the first that is loaded";
  const std::string more = "--num-iterations 40 --eval-every 20 ";
  ASSERT_EQ(run_program(large("whole", more)).code, 0);
  const auto expect_one_thread = [](const Profile& profile, const std::string& what) {
    EXPECT_GT(profile.signals, 0) << what;
    EXPECT_EQ(profile.elsewhere, 0) << what;
  };
  expect_one_thread(profiled(large("profiled", more)), "train");
  EXPECT_TRUE(tensors("profiled", 40) == tensors("whole", 40));
  for (const char* const command : {"eval --eval-tokens 640 --devices 1 ", "sample "}) {
    const std::string arguments = command + path("whole").string();
    std::string output;
    expect_one_thread(profiled(arguments, &output), command);
    EXPECT_EQ(output, run_program(arguments).out);
  }
}

// The kernel and the shell each send SIGHUP, and the end of a session may add SIGTERM; a launcher
// may send SIGTERM to a process and to its group.
TEST_F(Signals, SaveHoweverManyArriveAtOnceAndTheRunResumes) {
  const std::string run = "--num-iterations 6 --n-embd 256 --eval-every -1 --total-batch-size " +
                          std::string(test::kSanitized ? "768 " : "3072 ");
  train("whole", run);
  for (const std::string signals : {"HUP HUP TERM", "TERM TERM", "XCPU USR1 XCPU"}) {
    const std::string first = signals.substr(0, signals.find(' ')), part = "part" + first;
    const Outcome outcome = in_steps(
        part, run, "for s in " + signals + "; do kill -$s $pid 2>/dev/null; sleep 0.02; done");
    EXPECT_GT(outcome.code, 128) << outcome.err;
    EXPECT_FALSE(trainer::find_checkpoints(path(part)).empty()) << signals;
    EXPECT_THAT(test::read_file(path(part) / "output.log"),
                HasSubstr("SIG" + first + ": stopping, with a checkpoint"));
    train(part, run + "--resume auto");
    EXPECT_TRUE(tensors(part, 6) == tensors("whole", 6)) << signals;
  }
}

TEST_F(Signals, AbandonALongStepThatTheResumedRunRepeats) {
  const std::string run = fmt::format("--num-iterations 2 --eval-every -1 --total-batch-size {} ",
                                      test::kSanitized ? 49'152 : 393'216);
  train("whole", run);
  const Outcome outcome = in_steps("part", run, "kill -TERM $pid");
  EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
  ASSERT_EQ(trainer::find_checkpoints(path("part")).size(), 1U);
  EXPECT_TRUE(fs::exists(trainer::checkpoint_directory(path("part"), 1)));
  train("part", run + "--resume auto");
  EXPECT_TRUE(tensors("part", 2) == tensors("whole", 2));
}

TEST_F(Signals, OfAClosedTerminalDoNotAffectARunUnderNohup) {
  const Outcome outcome =
      in_steps("run", "--num-iterations 200 --eval-every -1", "kill -HUP $pid", "trap '' HUP;");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(trainer::checkpoint_directory(path("run"), 200)));
}

// `head` exits after the first line.
TEST_F(Signals, ARunOutlivesTheReaderOfItsOutput) {
  std::string sweep = options("sweep", "--num-iterations 40 --eval-every -1 --matrix-lr 0.1,0.2");
  sweep.replace(0, std::string("train").size(), "sweep");
  for (const std::string& command :
       {options("train", "--num-iterations 40 --eval-every -1"), sweep}) {
    const std::string code = path("code");
    run_program(fmt::format("{}; echo $? >{}; }} | {{ head -n 1", command, code));
    EXPECT_EQ(test::read_file(code), "0\n") << command;
  }
}

TEST_F(Signals, OfTheFileSizeLimitAreErrorsThatNameTheFile) {
  train("run", "--num-iterations 1 --eval-every -1");
  test::write_file(path("plotly.js"), "window.Plotly = {};");
  const std::string run = path("run"), out = path("out"), data = text_;
  const std::string page =
      fmt::format("report {} --plotly {} --out {}", run, path("plotly.js").string(), out);
  struct Case {
    std::string command, file;
    int code = 3;
  };
  for (const Case& c :
       {Case{fmt::format("tokenize {} --tokenizer byte --out {}", data, out),
             "out/train_000000.bin"},
        Case{fmt::format("tokenizer train --data {} --vocab-size 300 --out {}", data, out), "out"},
        Case{page, "out"},
        Case{fmt::format("checkpoint export {} --hf {}", run, out), "out/model.safetensors"},
        Case{options("again", "--eval-every -1"), "again/", 2}}) {   // before any work
    const Outcome outcome = run_program(c.command, "ulimit -f 6;");  // blocks of 512 bytes
    EXPECT_EQ(outcome.code, c.code) << c.command << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(testing::StartsWith("muograph: error: "),
                                   HasSubstr(path(c.file).string()), HasSubstr("File too large")));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    fs::remove_all(out);
  }
}

// Sends signals at random moments to three programs that compete for the cores, each under the
// profiler, until the run reaches the end of the undisturbed run. MUO_SIGNALS_MINUTES sets the
// duration (default 5).
class SlowSignals : public Signals {
 protected:
  void SetUp() override {
    if (!test::environment("MUO_SLOW"))
      GTEST_SKIP() << "minutes long; scripts/test.sh --slow runs it";
  }

  struct Work {
    std::string name;
    std::function<std::string(const std::string&out)> command, result;
    std::function<bool(const std::string& out)> is_done;
    // True if all completed work is on the disk; a second signal may prevent that.
    std::function<bool(const std::string& out)> is_saved = [](const std::string&) { return true; };
    std::string want = {};
    int signals = 0, resumed = 0, ends = 0;
  };
  using Clock = std::chrono::steady_clock;
  static void sleep_ms(std::uint64_t ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  }

  void disturb(Work& work, Clock::time_point end) const {
    const CounterRandom random(7, work.name);
    std::uint64_t draws = 0;
    const auto draw = [&](std::uint64_t below) { return random.bits(draws++) % below; };
    const auto draw_signal = [&] { return std::array{SIGTERM, SIGINT, SIGHUP}[draw(3)]; };
    for (; Clock::now() < end; ++work.ends) {
      const std::string out = fmt::format("{}{}", work.name, work.ends);
      for (bool first = true; first || !work.is_done(out); first = false) {
        work.resumed += first ? 0 : 1;
        const bool was_saved = work.is_saved(out);
        test::RunningProgram program(words_of(work.command(out)));
        if (Clock::now() >= end) {
          ASSERT_EQ(program.end_by(0), 0) << out;
          break;
        }
        sleep_ms(draw(1500));
        std::vector<int> sent = {draw_signal()};
        if (draw(4) == 0) {
          ::kill(program.pid(), sent[0]);
          sleep_ms(draw(30));
          sent.push_back(draw_signal());
        }
        const int code = program.end_by(sent.back());
        work.signals += static_cast<int>(sent.size());
        ASSERT_TRUE(code == 0 || code == 128 + sent[0] || code == 128 + sent.back())
            << out << ": " << code << " after signals " << testing::PrintToString(sent);
        EXPECT_TRUE(work.is_saved(out) || sent.size() > 1 || !was_saved) << out;
        if (code == 0) break;
      }
      ASSERT_TRUE(work.result(out) == work.want) << out;
      fs::remove_all(path(out));
    }
  }

  [[nodiscard]] std::string steps(const std::string& command, const std::string& out,
                                  const std::string& more) const {
    return command + options(out, "--eval-every -1 --resume auto --n-embd 128 " + more)
                         .substr(std::string("train").size());
  }
};

TEST_F(SlowSignals, AtRandomMomentsLoseNothing) {
  const std::string text = path("long"), tokenizer = path("tokenizer.json");
  test::write_text(text, 400'000);
  ASSERT_EQ(run_program("tokenizer train --data " + text_.string() + " --vocab-size 300 --out " +
                        tokenizer)
                .code,
            0);
  std::array all = {
      Work{.name = "train",
           .command = [&](auto& out) { return steps("train", out, "--num-iterations 100"); },
           .result = [&](auto& out) { return tensors(out, 100); },
           .is_done =
               [&](auto& out) { return fs::exists(trainer::checkpoint_directory(path(out), 100)); },
           .is_saved =
               [&](auto& out) {
                 const std::vector<trainer::FoundCheckpoint> found =
                     trainer::find_checkpoints(path(out));
                 const bool logs = fs::exists(path(out) / "metrics.jsonl");
                 return (found.empty() ? 0 : found[0].step) ==
                        (logs ? std::ssize(metrics(out, "train")) : 0);
               }},
      Work{.name = "sweep",
           .command =
               [&](auto& out) {
                 return steps("sweep", out, "--matrix-lr 0.1,0.2,0.3 --num-iterations 40");
               },
           .result =
               [&](auto& out) {
                 std::string trials;
                 for (const int trial : {0, 1, 2})
                   trials += tensors(fmt::format("{}/trials/{:04}", out, trial), 40);
                 return trials;
               },
           .is_done = [](auto&) { return false; }},
      Work{.name = "tokenize",
           .command =
               [&](auto& out) {
                 return fmt::format("tokenize {} --tokenizer {} --shard-tokens 200000 --out {}",
                                    text, tokenizer, path(out).string());
               },
           .result =
               [&](auto& out) {
                 std::string shards;
                 for (const std::string& name : test::names_in(path(out)))
                   if (!name.starts_with('.'))  // excludes the lock and files being written
                     shards += name + test::read_file(path(out) / name);
                 return shards;
               },
           .is_done = [](auto&) { return false; }}};
  for (Work& work : all) {
    const std::string out = work.name + "_whole";
    ASSERT_EQ(run_program(work.command(out)).code, 0) << out;
    work.want = work.result(out);
  }
  const test::ScopedEnvironment folder("LD_LIBRARY_PATH", kProfiler.parent_path());
  const test::ScopedEnvironment profiler("LD_PRELOAD", kProfiler.filename());
  const int minutes = std::stoi(test::environment("MUO_SIGNALS_MINUTES").value_or("5"));
  const auto end = Clock::now() + std::chrono::minutes(minutes);
  {
    std::vector<std::jthread> threads;
    threads.reserve(all.size());
    for (Work& work : all)
      threads.emplace_back([&] { disturb(work, end); });
  }
  for (const Work& work : all) {
    EXPECT_GT(work.resumed, 0) << work.name;
    fmt::print("{}: {} signals, {} times resumed, {} times to the end\n", work.name, work.signals,
               work.resumed, work.ends);
  }
}

}  // namespace
}  // namespace muo
