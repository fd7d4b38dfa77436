#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/paths.h"
#include "system/training_run.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::run_program;
using testing::HasSubstr;

// Training with the SIMT tier in place of GPUs: the program must not rely on host memory.
class DeviceTraining : public Training {};

TEST_F(DeviceTraining, RunsOnVirtualRanksOfADeviceAndTheHostResumes) {
  const std::string run =
      "--num-iterations 4 --total-batch-size 256 --eval-every 2 --save-every 2 ";
  const Outcome device = run_program(
      options("device",
              run + "--verbose --backend cuda --devices 1 --ranks-per-device 2 --dtype fp32"),
      "MUO_CUDA_PLUGIN=muograph_simt");
  ASSERT_EQ(device.code, 0) << device.err << device.out;
  EXPECT_THAT(device.out + device.err, HasSubstr("attention, window 32: own kernels in fp32"));
  train("host", run);
  const std::vector<double> got = losses("device");
  const std::vector<double> want = losses("host");
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-5) << "step " << i;
  EXPECT_NEAR(metrics("device", "eval").back()["val_loss"].get<double>(),
              metrics("host", "eval").back()["val_loss"].get<double>(), 1e-5);
  // A checkpoint does not depend on the backend that wrote it.
  train("resumed", run + "--backend host --resume " +
                       trainer::checkpoint_directory(path("device"), 2).string());
  EXPECT_NEAR(losses("resumed").back(), want.back(), 1e-5);
  // The other commands that read one run also work on a device.
  const std::string sample =
      "sample --max-tokens 5 --temperature 0 --prompt line --checkpoint " + path("device").string();
  const Outcome text = run_program(sample + " --backend cuda", "MUO_CUDA_PLUGIN=muograph_simt");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out, run_program(sample + " --backend host").out);
  const Outcome eval = run_program(
      "eval --eval-tokens 64 --backend cuda --devices 1 --checkpoint " + path("device").string(),
      "MUO_CUDA_PLUGIN=muograph_simt");
  EXPECT_THAT(eval.out, HasSubstr("val_loss")) << eval.err;
  const std::string golden = test::source_directory() + "/tests/golden/core/";
  const std::string examples = "eval --json --max-per-task 7 --row-tokens 130 --core " + golden +
                               "bundle --hellaswag " + golden + "hellaswag.bin --checkpoint " +
                               path("device").string();
  const Outcome answers = run_program(examples + " --backend cuda --devices 1 --dtype fp32",
                                      "MUO_CUDA_PLUGIN=muograph_simt");
  EXPECT_EQ(answers.code, 0) << answers.err;
  EXPECT_EQ(answers.out, run_program(examples + " --backend host").out);
}

TEST_F(DeviceTraining, TheChoiceOfAttentionIsLoggedRecordedAndChecked) {
  const std::string simt = "MUO_CUDA_PLUGIN=muograph_simt ";
  const auto train_with = [&](const std::string& more, const std::string& environment = "") {
    return run_program(options("run",
                               "--total-batch-size 128 --eval-every -1 --dtype bf16 "
                               "--verbose --backend cuda --devices 1 " +
                                   more),
                       simt + environment);
  };
  const Outcome absent = train_with("--attention cudnn");
  EXPECT_EQ(absent.code, 2);
  EXPECT_THAT(absent.err, HasSubstr("attention cudnn (--attention, MUO_ATTENTION): this build has "
                                    "no cuDNN attention"));
  EXPECT_EQ(train_with("", "MUO_ATTENTION=cudnn").code, 2);
  EXPECT_EQ(train_with("", "MUO_ATTENTION=flash").code, 2);
  EXPECT_FALSE(fs::exists(path("run")));
  const Outcome portable =
      train_with("--num-iterations 2 --deterministic off", "MUO_ATTENTION=portable");
  ASSERT_EQ(portable.code, 0) << portable.err;
  EXPECT_THAT(portable.out, HasSubstr("attention: portable (MUO_ATTENTION)"));
  EXPECT_THAT(portable.out, HasSubstr("attention, window 32: own kernels in fp32 (as asked for)"));
  EXPECT_THAT(portable.out, HasSubstr("deterministic: off: "));
  const std::string config = test::read_file(path("run") / "config.toml");
  EXPECT_THAT(config, HasSubstr("attention = \"portable\""));
  EXPECT_THAT(config, HasSubstr("deterministic = false"));
  // The run's configuration is kept, and options that have changed are listed.
  const Outcome own = train_with("--resume auto --num-iterations 3 --attention own");
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_THAT(own.out, HasSubstr("attention, window 32: own kernels on tensor cores"));
  EXPECT_THAT(own.out, HasSubstr("deterministic: off: "));
  EXPECT_THAT(own.out, HasSubstr("attention portable, now own"));
  EXPECT_THAT(own.out, testing::Not(HasSubstr("deterministic off, now")));
  const Outcome both = train_with("--resume auto --num-iterations 4 --deterministic on");
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("changed since "));
  EXPECT_THAT(both.out, HasSubstr("deterministic off, now on"));
  EXPECT_THAT(both.out, testing::Not(HasSubstr("deterministic: off: ")));
  const std::string eval = "eval --backend host --devices 1 --checkpoint " + path("run").string();
  EXPECT_EQ(run_program(eval, "MUO_ATTENTION=flash").code, 2);
}

// Two ranks share one GPU with four hardware queues: a spinning collective blocks the queue of work
// that the other rank needs. Following the advice in the message solves this.
TEST_F(DeviceTraining, TooFewHardwareQueuesAreReportedAndOneBranchNeedsFewer) {
  const auto with_branches = [&](const std::string& branches, const std::string& deadline = {}) {
    return run_program(
        options("run" + branches,
                "--num-iterations 3 --total-batch-size 256 --eval-every -1 --backend "
                "cuda --devices 1 --ranks-per-device 2 --graph-branches " +
                    branches),
        "MUO_CUDA_PLUGIN=muograph_simt CUDA_DEVICE_MAX_CONNECTIONS=4 " + deadline);
  };
  const Outcome three = with_branches("3", "MUO_PEER_DEADLINE_MS=2000");
  EXPECT_EQ(three.code, 3);
  EXPECT_THAT(three.err, testing::ContainsRegex("rank [01] waited 2000 ms in [a-z_]+ with tag .* "
                                                "for rank [01], which did not arrive"));
  EXPECT_THAT(three.err, HasSubstr("if ranks share a GPU, try --graph-branches 1"));
  const Outcome one = with_branches("1");
  EXPECT_EQ(one.code, 0) << one.err;
}

// Queues are assigned round-robin, as a driver may do. With three branches, the step of eight
// layers forks 34 times, so that each of the 32 queues holds a part of the first rank's step, which
// spins ahead of its peer's computation. The default does not fork.
TEST_F(DeviceTraining, RanksThatShareAGpuHaveOneBranchUnlessThreeAreAskedFor) {
  const auto train = [&](const std::string& name, const std::string& more,
                         const std::string& deadline = {}) {
    return run_program(
        options(name,
                "--num-iterations 3 --total-batch-size 256 --eval-every -1 --backend "
                "cuda --devices 1 --ranks-per-device 2 --depth 8 " +
                    more),
        "MUO_CUDA_PLUGIN=muograph_simt CUDA_STAND_IN_QUEUES=in_turn " + deadline);
  };
  const Outcome three = train("three", "--graph-branches 3", "MUO_PEER_DEADLINE_MS=5000");
  EXPECT_EQ(three.code, 3);
  EXPECT_THAT(three.err, HasSubstr("if ranks share a GPU, try --graph-branches 1"));
  for (const char* more : {"", "--shard weights"}) {
    const Outcome one = train("one" + std::to_string(std::string_view(more).size()), more);
    EXPECT_EQ(one.code, 0) << one.err;
  }
}

// The pair of kernels and the fused kernel agree except for the order of sums. A wrong fused kernel
// is detected and not used, and the run then has the same bits as with the pair.
TEST_F(DeviceTraining, FusedProductsAreComparedBeforeTheyAreUsed) {
  const auto train = [&](const std::string& name, const std::string& fused,
                         const std::string& more = {}) {
    return run_program(options(name,
                               "--num-iterations 3 --total-batch-size 128 --eval-every -1 --dtype "
                               "bf16 --backend cuda --devices 1 " +
                                   more),
                       "MUO_CUDA_PLUGIN=muograph_simt " + fused);
  };
  const Outcome pair = train("pair", "SIMT_FUSED=1", "--fused-products off");
  ASSERT_EQ(pair.code, 0) << pair.err;
  const Outcome fused = train("fused", "SIMT_FUSED=1");
  ASSERT_EQ(fused.code, 0) << fused.err;
  EXPECT_THAT(fused.err, testing::Not(HasSubstr("not used")));
  const Outcome wrong = train("wrong", "SIMT_FUSED=wrong");
  ASSERT_EQ(wrong.code, 0) << wrong.err;
  EXPECT_THAT(wrong.err, testing::AllOf(HasSubstr("fused product of ReLU^2"),
                                        HasSubstr("results differ from plain sums")));
  EXPECT_EQ(losses("wrong"), losses("pair"));
  for (std::size_t i = 0; i < losses("pair").size(); ++i)
    EXPECT_NEAR(losses("fused")[i], losses("pair")[i], 0.02) << "step " << i;
  const auto saved = [&](const std::string& name) {
    return test::read_file(path(name) / "config.toml");
  };
  EXPECT_THAT(saved("fused"), HasSubstr("fused-products = true"));
  EXPECT_THAT(saved("pair"), HasSubstr("fused-products = false"));
  // The choice is kept, or a note says where that is not possible.
  const Outcome without =
      run_program("train --verbose --num-iterations 4 --resume " + path("fused").string(),
                  "MUO_CUDA_PLUGIN=muograph_simt");
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_THAT(without.out, HasSubstr("fused products: off: none stand in"));
}

TEST_F(DeviceTraining, AGemmTableIsWrittenOnceAndServesTheNextRun) {
  const std::string file = path("gemm.json").string();
  const auto train_with = [&](const std::string& out, const std::string& table) {
    return run_program(options(out,
                               "--num-iterations 1 --total-batch-size 128 --eval-every -1 "
                               "--backend cuda --devices 1 --gemm-table " +
                                   table),
                       "MUO_CUDA_PLUGIN=muograph_simt");
  };
  const Outcome first = train_with("first", file);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string table = test::read_file(file);
  EXPECT_THAT(table, HasSubstr("\"problem\": \"bf16 into fp32"));
  // The cache is read, and not written when nothing is new.
  fs::permissions(file, fs::perms::owner_read);
  const auto written = fs::last_write_time(file);
  EXPECT_EQ(train_with("second", file).code, 0);
  EXPECT_EQ(fs::last_write_time(file), written);
  const std::string other = path("other.json").string();
  std::string elsewhere = table;
  test::write_file(other, elsewhere.replace(elsewhere.find("the CPU"), 7, "a GPU's"));
  const Outcome refused = train_with("third", other);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("other.json: measured with cuBLASLt 130100 on a GPU's"));
  EXPECT_EQ(train_with("fourth", "/nowhere/gemm.json").code, 2);
  const Outcome host = run_program(options("host", "--gemm-table " + file));
  EXPECT_EQ(host.code, 2);
  EXPECT_THAT(host.err, HasSubstr("only for GPUs"));
}

TEST_F(DeviceTraining, ProductsAreMeasuredOnceForTheCacheWhereBitsMayDiffer) {
  const std::string cache = path("cache").string();
  const auto train_with = [&](const std::string& out, const std::string& more) {
    return run_program(options(out,
                               "--num-iterations 1 --total-batch-size 128 --eval-every -1 "
                               "--backend cuda --devices 1 " +
                                   more),
                       "MUO_CUDA_PLUGIN=muograph_simt XDG_CACHE_HOME=" + cache);
  };
  const auto measured = HasSubstr(" products: " + cache);
  const Outcome same_bits = train_with("same_bits", "");
  EXPECT_EQ(same_bits.code, 0) << same_bits.err;
  EXPECT_THAT(same_bits.out, testing::Not(HasSubstr("tune: ")));
  EXPECT_FALSE(fs::exists(cache));
  const Outcome first = train_with("first", "--deterministic off");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, measured);
  const Outcome second = train_with("second", "--deterministic off");
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.out, testing::Not(HasSubstr("tune: ")));
  EXPECT_THAT(train_with("again", "--tune now").out, measured);
  const Outcome off = train_with("off", "--deterministic off --tune off");
  EXPECT_EQ(off.code, 0) << off.err;
  EXPECT_THAT(off.out, testing::Not(HasSubstr("tune: ")));
  const fs::path file = fs::directory_iterator(fs::path(cache) / "muograph")->path();
  test::write_file(file, "no table");
  EXPECT_THAT(train_with("damaged", "--tune once").out,
              testing::AllOf(HasSubstr("not a table of GEMM algorithms"),
                             HasSubstr(": measuring again"), measured));
  // An entry that the library rejects is also measured again.
  std::string table = test::read_file(file);
  table.replace(table.find("\"id\": "), 6, "\"id\": 9");
  test::write_file(file, table);
  const Outcome refused = train_with("refused", "--tune once");
  EXPECT_EQ(refused.code, 0) << refused.err;
  EXPECT_THAT(refused.out, HasSubstr("tune: measured 1 products"));
  // An unusable cache: a file is in place of its folder.
  fs::remove_all(cache);
  test::write_file(cache, "");
  const Outcome no_cache = train_with("no_cache", "--tune once");
  EXPECT_EQ(no_cache.code, 0) << no_cache.err;
  EXPECT_THAT(no_cache.out, testing::AllOf(HasSubstr("tune: cannot write "),
                                           HasSubstr(": the next run will measure again")));
  const Outcome host = run_program(options("host", "--tune once"));
  EXPECT_EQ(host.code, 2);
  EXPECT_THAT(host.err, HasSubstr("--tune once: requires GPUs"));
  const Outcome both = train_with("both", "--tune now --gemm-table table.json");
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("give only one of the two options"));
}

}  // namespace
}  // namespace muo
