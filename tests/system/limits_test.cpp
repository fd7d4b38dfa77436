#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/sanitized.h"
#include "system/training_run.h"

// Runs under limits of control groups, of the process's address space and of threads.
namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;

class Limits : public Training {
 protected:
  // A run whose weights and state exceed 1.5 GiB.
  [[nodiscard]] std::string large(const std::string& command) const {
    return command + " --data " + text_.string() +
           " --backend host --devices 1 --model plain --n-layer 8 --n-embd 1024 --n-head 8 "
           "--max-seq-len 64 --total-batch-size 64 --num-iterations 1";
  }
};

// Fake control groups (version 2): files in a mount that only this command sees, which requires
// root.
class FakedGroups : public Limits {
 protected:
  void SetUp() override {
    // NOLINTNEXTLINE(concurrency-mt-unsafe, cert-env33-c): one thread, no input
    if (std::system("unshare --mount mount -t tmpfs none /mnt 2>/dev/null") != 0)
      GTEST_SKIP() << "this process may not mount a file system: run it as root";
    test::write_file(path("cgroup"), "0::/system.slice/job.scope\n");
  }
  // A prefix for a command; `files` creates files in the folder of /system.slice/job.scope.
  [[nodiscard]] std::string in_group(const std::string& files) const {
    return "unshare --mount sh -c 'mount -t tmpfs none /sys/fs/cgroup && "
           "mkdir -p /sys/fs/cgroup/system.slice/job.scope && "
           "(cd /sys/fs/cgroup/system.slice/job.scope && " +
           files + ") && mount --bind " + path("cgroup").string() +
           " /proc/$$/cgroup && exec \"$@\"' sh";
  }
};

const std::string kOneGiB =
    "echo 1073741824 >memory.max && echo 209715200 >memory.current && "
    "echo inactive_file 0 >memory.stat";

TEST_F(FakedGroups, LimitMemoryForDoctorPlanAndTrainAlike) {
  const std::string limit = "(limit of the cgroup /system.slice/job.scope)";
  EXPECT_THAT(run_program("doctor", in_group(kOneGiB)).out,
              HasSubstr(" GiB, 0.8 GiB available " + limit));
  const Outcome plan = run_program(large("plan"), in_group(kOneGiB));
  const Outcome train =
      run_program(large("train --out " + path("run").string()), in_group(kOneGiB));
  EXPECT_EQ(plan.code, 2);
  EXPECT_THAT(plan.err,
              AllOf(HasSubstr("not enough memory: 1 device needs "),
                    // 824 MiB less process_base() and kBaseSpread
                    HasSubstr(", but 780.5 MiB are available beside the program " + limit)));
  EXPECT_EQ(train.code, 2);
  EXPECT_EQ(train.err, plan.err);
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(FakedGroups, LimitTheTextThatIsTokenizedInMemory) {
  const std::string tokenizer = path("tokenizer.json").string();
  ASSERT_EQ(run_program("tokenizer train --data " + text_.string() + " --vocab-size 300 --out " +
                        tokenizer)
                .code,
            0);
  const auto plan = [&](int available) {
    return run_program("plan --data " + text_.string() + " --tokenizer " + tokenizer,
                       in_group("echo 1000000 >memory.max && echo " +
                                std::to_string(1000000 - available) + " >memory.current"));
  };
  const auto bytes = static_cast<int>(fs::file_size(text_));
  const Outcome refused = plan(3 * bytes - 1);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr(" are available (limit of the cgroup /system.slice/job.scope): write "
                              "token shards to disk instead: muograph tokenize " +
                              text_.string() + " --tokenizer " + tokenizer)));
  EXPECT_THAT(plan(3 * bytes).err, HasSubstr("not enough memory: "));
}

TEST_F(FakedGroups, LimitCoresToTheirQuota) {
  const std::string half = in_group("echo 50000 100000 >../cpu.max");
  EXPECT_THAT(run_program("doctor", half).out,
              HasSubstr(" 1 usable (quota of the cgroup /system.slice): --devices 1 is enough"));
  EXPECT_THAT(run_program("plan", half).out, HasSubstr("devices: 1 (1 cores, at most 4)"));
}

TEST_F(Limits, OfTheAddressSpaceAreReportedEarlyOrKept) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer reserves more address space than there is";
  const std::string limit = "(limit of the address space, ulimit -v)";
  EXPECT_THAT(run_program("doctor", "ulimit -v 2000000;").out,
              HasSubstr(" GiB available " + limit));
  const Outcome train =
      run_program(large("train --out " + path("run").string()), "ulimit -v 1200000;");
  EXPECT_EQ(train.code, 2);
  // The number may differ, because the two commands hold slightly different amounts of memory.
  const auto rounded = [](const std::string& text) {
    return std::regex_replace(text, std::regex("10[0-9]{2}[.][0-9] MiB are"), "about 1 GiB are");
  };
  EXPECT_EQ(rounded(train.err), rounded(run_program(large("plan"), "ulimit -v 1200000;").err));
  EXPECT_THAT(train.err, HasSubstr(" are available beside the program " + limit));
  // Separate heaps for all its threads would not fit.
  const Outcome kept =
      run_program(options("kept", "--save-every 10 --sample-every 10"), "ulimit -v 300000;");
  EXPECT_EQ(kept.code, 0) << kept.err;
}

// Limits the number of a command's threads.
class Threads : public Training {
 protected:
  void SetUp() override {
    if (test::kSanitized) GTEST_SKIP() << "a sanitizer has threads, and limits, of its own";
    fs::permissions(directory_.path(), fs::perms::all);
    if (run_program("--version", at_most(1000)).code != 0)
      GTEST_SKIP() << "another user may not run this program";
  }
  // A prefix for a command. The limit does not apply to root, so root runs the command as a user
  // without other threads; for any other user, all of the user's processes count.
  [[nodiscard]] static std::string at_most(int threads) {
    const std::string limit = "prlimit --nproc=" + std::to_string(threads);
    if (!is_root()) return limit;
    const std::string user = std::to_string(40000 + getpid() % 20000);
    return "setpriv --reuid " + user + " --regid " + user + " --clear-groups " + limit;
  }
  static bool is_root() { return geteuid() == 0; }

  // Allows 1, 2, 3 threads and so on until they suffice, so that another thread is refused each
  // time.
  static void expect_one_line_each(const std::function<std::string(std::string)>& command) {
    constexpr int kEnough = 40;
    for (int threads = 1; threads < (is_root() ? kEnough : 2); ++threads) {
      const std::string arguments = command(std::to_string(threads));
      SCOPED_TRACE(arguments);
      const Outcome outcome = run_program(arguments, at_most(threads));
      if (outcome.code == 0 && threads > 2) return;
      EXPECT_EQ(outcome.code, 3) << threads;
      EXPECT_THAT(outcome.err,
                  testing::MatchesRegex("muograph: error: [^\n]*the system refuses a further "
                                        "thread: this user has a limit of " +
                                        std::to_string(threads) + " for processes and [^\n]*\n"))
          << threads;
    }
    if (is_root()) FAIL() << kEnough << " threads are not enough";
  }
};

TEST_F(Threads, ThatTheSystemRefusesEndARunWithTheLimit) {
  train("run", "--num-iterations 1");
  fs::permissions(path("run"), fs::perms::all);
  const std::string run = path("run").string();
  expect_one_line_each([&](const std::string& threads) {
    return options("limited" + threads, "--save-every 10 --sample-every 10 --save-mode background");
  });
  expect_one_line_each([&](const std::string& threads) {
    return "tokenize " + text_.string() + " --tokenizer byte --threads 3 --out " +
           path("shards" + threads).string();
  });
  expect_one_line_each([&](const std::string& threads) {
    std::string sweep = options("sweep" + threads, "--num-iterations 2 --eval-every -1");
    sweep.replace(0, sweep.find(' '), "sweep");
    sweep.replace(sweep.find("--matrix-lr 0.3"), 15, "--matrix-lr 0.2,0.3");
    return sweep;
  });
  expect_one_line_each([&](const std::string&) { return "eval " + run + " --devices 2"; });
  expect_one_line_each([&](const std::string&) { return "sample " + run + " --max-tokens 3"; });
}

TEST_F(Threads, ThatTheSystemRefusesEndAServer) {
  train("run", "--num-iterations 1");
  fs::permissions(path("run"), fs::perms::all);
  test::write_file(path("plotly.js"), "window.Plotly = {};");
  // 16 threads answer, one listens, one handles signals, and there is the main thread.
  for (const int threads : is_root() ? std::vector{1, 2, 10, 17, 18} : std::vector{1}) {
    const Outcome outcome =
        run_program("report " + path("run").string() + " --follow --port 0 --plotly " +
                        path("plotly.js").string(),
                    "timeout 60 " + at_most(threads));
    EXPECT_EQ(outcome.code, 3) << threads;
    EXPECT_THAT(outcome.err, HasSubstr("error: the system refuses a further thread: "));
  }
}

}  // namespace
}  // namespace muo
