#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/environment.h"
#include "support/paths.h"
#include "system/training_run.h"
#include "trainer/run/backend.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::run_program;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kH100 = "NVIDIA H100 80GB HBM3";

// The files by which a driver shows its GPUs, in the folder MUO_GPU_ROOT.
class Gpus : public Training {
 protected:
  void add_file(const std::string& name, const std::string& text = "") {
    fs::create_directories((root_ / name).parent_path());
    test::write_file(root_ / name, text);
  }
  void add_gpu(int number, const std::string& model) {
    add_file("dev/nvidia" + std::to_string(number));
    add_file("proc/driver/nvidia/gpus/0000:0" + std::to_string(number) + ":00.0/information",
             "Model: \t\t " + model + "\nIRQ:   \t\t 17\nDevice Minor: \t " +
                 std::to_string(number) + "\n");
  }
  // One step, as `train` runs it without --backend.
  Outcome one_step(const std::string& environment, const std::string& more = "") {
    return run_program(options("run" + std::to_string(++runs_),
                               "--num-iterations 1 --eval-every -1 --total-batch-size 128 "
                               "--verbose --devices 1 " +
                                   more),
                       environment);
  }
  [[nodiscard]] fs::path run() const { return path("run" + std::to_string(runs_)); }

 private:
  fs::path root_ = path("root");
  test::ScopedEnvironment variable_{"MUO_GPU_ROOT", root_.string()};
  int runs_ = 0;
};

TEST_F(Gpus, AreFoundInDevAndThroughTheDriver) {
  EXPECT_THAT(trainer::gpus_here(), IsEmpty());
  for (const char* other : {"nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia1x"})
    add_file(std::string("dev/") + other);
  EXPECT_THAT(trainer::gpus_here(), IsEmpty());
  add_gpu(10, "NVIDIA A100-SXM4-40GB");
  add_gpu(2, kH100);
  add_gpu(0, kH100);
  add_file("dev/nvidia3");
  const std::vector<trainer::Gpu> gpus = trainer::gpus_here();
  ASSERT_EQ(gpus.size(), 4);
  EXPECT_EQ(gpus[1].device, "/dev/nvidia2");
  EXPECT_EQ(gpus[1].model, kH100);
  EXPECT_EQ(trainer::gpu_names(gpus),
            "2 x NVIDIA H100 80GB HBM3 (/dev/nvidia0, /dev/nvidia2), NVIDIA GPU (/dev/nvidia3), "
            "NVIDIA A100-SXM4-40GB (/dev/nvidia10)");
}

TEST_F(Gpus, NotGivenToAContainerAreSeenToo) {
  add_file("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA L4\n");
  EXPECT_EQ(trainer::gpu_names(trainer::gpus_here()), "NVIDIA L4");
}

TEST_F(Gpus, UnusedByARunAreItsFirstLine) {
  add_gpu(0, kH100);
  const std::string line =
      "GPU not used: NVIDIA H100 80GB HBM3 (/dev/nvidia0): this build has no "
      "libmuograph_nowhere.so: build it with `scripts/train.sh`, or install muograph-cuda\n";
  const std::string nowhere = "MUO_CUDA_PLUGIN=muograph_nowhere";
  const Outcome train = one_step(nowhere);
  EXPECT_EQ(train.code, 0) << train.err;
  EXPECT_THAT(train.out, StartsWith(line));
  EXPECT_THAT(train.out, HasSubstr("\nbackend: host\n"));

  // The other commands print the line, too; those whose output is for programs write it to standard
  // error.
  const std::string checkpoint = " --checkpoint " + run().string();
  EXPECT_THAT(run_program("eval --eval-tokens 64" + checkpoint, nowhere).out, StartsWith(line));
  const std::string sample = "sample --max-tokens 2 --prompt x" + checkpoint;
  const Outcome sampled = run_program(sample, nowhere);
  EXPECT_EQ(sampled.err, line);
  EXPECT_EQ(sampled.out, run_program(sample + " --backend host", nowhere).out);
  const Outcome plan = run_program("plan --json --depth 1", nowhere);
  EXPECT_EQ(plan.err, line);
  EXPECT_THAT(plan.out, StartsWith("{"));

  const Outcome asked = one_step(nowhere, "--backend host");
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, Not(HasSubstr("GPU not used")));
  const Outcome refused = one_step(nowhere, "--backend cuda");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err,
            "muograph: error: --backend cuda: this build has no libmuograph_nowhere.so\n");
}

TEST_F(Gpus, AreUsedByDefault) {
  add_gpu(0, kH100);
  const Outcome used = one_step("MUO_CUDA_PLUGIN=muograph_simt");
  EXPECT_EQ(used.code, 0) << used.err;
  EXPECT_THAT(used.out, Not(HasSubstr("not used")));
  EXPECT_THAT(used.out, HasSubstr("backend: cuda\n"));
}

TEST_F(Gpus, AreNotUsedForTheReasonGivenByTheBuild) {
  add_gpu(0, kH100);
  add_gpu(1, kH100);
  const Outcome train =
      one_step("MUO_CUDA_PLUGIN=muograph_nowhere MUO_NO_CUDA='the driver is too old: update it'");
  EXPECT_THAT(train.out,
              StartsWith("GPUs not used: 2 x NVIDIA H100 80GB HBM3 (/dev/nvidia0, /dev/nvidia1): "
                         "the driver is too old: update it\n"));
  EXPECT_THAT(one_step("MUO_CUDA_PLUGIN=muograph_simt MUO_NO_CUDA=stale").out,
              AllOf(HasSubstr("backend: cuda\n"), Not(HasSubstr("not used"))));
}

TEST_F(Gpus, WithoutTheDriversLibraryAreNotUsed) {
  if (trainer::library_loads("libcuda.so.1")) GTEST_SKIP() << "this machine has an NVIDIA driver";
  EXPECT_EQ(trainer::unused_gpus(), "");
  EXPECT_THAT(one_step("").out, HasSubstr("backend: host (no NVIDIA driver)\n"));
  add_gpu(0, kH100);
  EXPECT_THAT(trainer::unused_gpus(),
              StartsWith("GPU not used: NVIDIA H100 80GB HBM3 (/dev/nvidia0): the driver library "
                         "libcuda.so.1 cannot be loaded: start a container with `docker run"));
}

TEST_F(Gpus, AreDescribedByDoctor) {
  const std::string nowhere = "MUO_CUDA_PLUGIN=muograph_nowhere";
  EXPECT_THAT(run_program("doctor --gpu", nowhere).out, Not(HasSubstr("not used")));
  add_gpu(0, kH100);
  const std::string line =
      "CUDA backend  GPU not used: NVIDIA H100 80GB HBM3 (/dev/nvidia0): this build has no "
      "libmuograph_nowhere.so: build it with `scripts/train.sh`, or install muograph-cuda\n";
  const Outcome all = run_program("doctor", nowhere);
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.out, HasSubstr(line));
  EXPECT_THAT(all.out, HasSubstr("/dev/nvidia0: NVIDIA H100 80GB HBM3, 989 TFLOP/s"));
  EXPECT_THAT(all.out, HasSubstr("Ready to train, but on the CPU only"));
  std::ifstream memory("/proc/meminfo");
  std::string key;
  double kib = 0;
  memory >> key >> kib;
  EXPECT_THAT(all.out, HasSubstr(fmt::format("{:.1f} GiB, ", kib / 1048576)));
  const Outcome gpu = run_program("doctor --gpu", nowhere);
  EXPECT_EQ(gpu.code, 3);
  EXPECT_THAT(gpu.out, HasSubstr(line));
  EXPECT_EQ(run_program("doctor --gpu", "MUO_CUDA_PLUGIN=muograph_simt").code, 0);
  // A driver without development files provides only this name of the library; any library will do.
  fs::create_directory(path("driver"));
  fs::create_symlink(fs::path(test::program()).replace_filename("libcuda_stand_in.so"),
                     path("driver/libcuda.so.1"));
  EXPECT_THAT(run_program("doctor", nowhere + " LD_LIBRARY_PATH=" + path("driver").string()).out,
              Not(ContainsRegex("\ndriver +(none|.* does not load)")));
}

TEST_F(Gpus, UnusableByCudaHaveAReason) {
  const auto told = [&](const std::string& environment) {
    return run_program("doctor --gpu",
                       "MUO_CUDA_PLUGIN=muograph_simt CUDA_STAND_IN_" + environment);
  };
  for (const auto& [environment, why] : std::vector<std::pair<std::string, std::string>>{
           {"ERROR=35 CUDA_STAND_IN_DRIVER=0",
            "no NVIDIA driver (libcuda.so.1 does not load); "
            "install one for CUDA 13.0 or newer"},
           {"ERROR=35 CUDA_STAND_IN_DRIVER=12080",
            "the NVIDIA driver is for CUDA 12.8, this build "
            "needs 13.0: update the driver"},
           {"ERROR=34", "the toolkit's stub, not a driver"},
           {"ERROR=100", "the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES empty?)"},
           {"ERROR=802", "`systemctl start nvidia-fabricmanager`"},
           {"ERROR=2", "cudaErrorMemoryAllocation (out of memory): see `dmesg"},
           {"ERROR=209",
            "GPU 0 (the CPU, 1024 GiB, 132 multiprocessors, compute capability 9.0) "
            "has an architecture that this build does not include"},
           {"GPUS=0", "CUDA finds no GPU"}}) {
    const Outcome outcome = told(environment);
    EXPECT_EQ(outcome.code, 3) << environment;
    EXPECT_THAT(outcome.out, HasSubstr(why)) << environment;
  }
}

// configs/quick_gpu.toml works on any number of GPUs.
TEST_F(Gpus, OfAnyNumberTrainTheQuickModel) {
  for (const char* devices : {"1", "2", "3", "4", "5", "6", "7", "8"}) {
    const Outcome plan = run_program("plan --backend cuda --config " + test::source_directory() +
                                         "/configs/quick_gpu.toml --devices " + devices,
                                     "MUO_CUDA_PLUGIN=muograph_simt");
    EXPECT_EQ(plan.code, 0) << devices << ": " << plan.err;
  }
}

}  // namespace
}  // namespace muo
