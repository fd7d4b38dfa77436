// Checks the decisions of scripts/train.sh, with a fake nvidia-smi and without a build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/files.h"
#include "system/script_clone.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kH100 = "9.0, 580.65.06, GPU-1, NVIDIA H100 80GB HBM3";
constexpr const char* kT4 = "7.5, 580.65.06, GPU-2, Tesla T4";

// The scripts in a folder of their own, with the commands of a machine without a GPU and a CUDA
// toolkit.
class TrainScript : public test::ScriptClone {
 protected:
  TrainScript() {
    fs::create_directories(root_ / "dev");
    fs::create_directories(clone_ / "build/release");
    fs::create_directories(clone_ / "build/third_party");
    link({"df", "env", "mktemp", "sleep", "uname"});
    add_command("cmake", "echo cmake \"$@\" >>" + log());
    add_command("setup", "echo setup \"$@\" >>" + log());
    fs::remove(clone_ / "scripts/setup.sh");
    fs::create_symlink(bin_ / "setup", clone_ / "scripts/setup.sh");
    // A stand-in for the program: doctor --gpu exits with MUO_TEST_GPU_WORKS, and train prints its
    // arguments.
    write_script(clone_ / "build/release/muograph",
                 "if [ $1 = doctor ]; then exit ${MUO_TEST_GPU_WORKS:-0}; fi\n"
                 "echo no cuda: $MUO_NO_CUDA; echo visible: $CUDA_VISIBLE_DEVICES; echo \"$@\"");
  }

  void add_gpu(const std::string& smi_says) {
    test::write_file(root_ / "dev/nvidia0", "");
    add_command("nvidia-smi", "echo '" + smi_says + "'");
  }
  void add_toolkit(const std::string& release) {
    fs::create_directories(directory_.path() / "cuda/bin");
    fs::create_directories(directory_.path() / "cuda/include");
    write_script(toolkit() / "bin/nvcc", "echo 'Cuda compilation tools, release " + release + "'");
    test::write_file(toolkit() / "include/cublasLt.h", "");
    test::write_file(toolkit() / "include/cudnn.h", "");
  }
  Outcome targets(const std::string& environment = "") {
    return script("gpu_targets.sh", environment);
  }
  Outcome train(const std::string& arguments = "", const std::string& environment = "") {
    fs::remove(log());
    return script("train.sh " + arguments, environment);
  }
  [[nodiscard]] fs::path toolkit() const { return directory_.path() / "cuda"; }

  fs::path root_ = directory_.path() / "root";

 private:
  Outcome script(const std::string& command, const std::string& environment) {
    return run(command,
               "-u CUDA_VISIBLE_DEVICES -u CUDA_PATH -u CUDA_HOME MUO_GPU_ROOT=" + root_.string() +
                   " CUDAToolkit_ROOT=" + toolkit().string() + " MUO_SMI_SECONDS=1 " + environment);
  }
};

TEST_F(TrainScript, CompilesForEveryKindOfGpuOnce) {
  add_gpu(kH100);
  EXPECT_EQ(targets().out, "90a-real\n");
  add_gpu(std::string(kH100) + "\n12.0, 580.65.06, GPU-3, RTX PRO 6000\n" + kH100 +
          "\n8.9, 580.65.06, GPU-4, NVIDIA L4\n10.3, 580.65.06, GPU-5, NVIDIA B300");
  EXPECT_EQ(targets().out, "89-real;90a-real;103a-real;120-real\n");
  EXPECT_EQ(targets().err, "");
  EXPECT_EQ(targets("MUO_CUDA_ARCHITECTURES=80-real").out, "80-real\n");
}

TEST_F(TrainScript, LeavesOutOldGpus) {
  add_gpu(std::string(kT4) + "\n" + kH100);
  EXPECT_EQ(targets().out, "90a-real\nGPU-1\n");
  EXPECT_THAT(targets().err, EndsWith(": Tesla T4 (compute capability 7.5)\n"));
  add_gpu(kT4);
  EXPECT_EQ(targets().code, 2);
  EXPECT_THAT(targets().err, StartsWith("Tesla T4 (compute capability 7.5): muograph needs"));
}

TEST_F(TrainScript, AsksForADriverOfCuda13) {
  add_gpu("9.0, 535.183.06, GPU-1, NVIDIA H100 80GB HBM3");
  EXPECT_EQ(targets().code, 2);
  EXPECT_THAT(targets().err, StartsWith("the NVIDIA driver 535.183.06 is too old: CUDA 13.0 needs "
                                        "580 or newer: update the driver"));
  // NVIDIA's compatibility package makes the older driver sufficient.
  add_command("nvidia-smi",
              "if [ $# -gt 0 ]; then echo 9.0, 535.183.06, GPU-1, H100; else echo '| NVIDIA-SMI "
              "535.183.06   Driver Version: 535.183.06   CUDA Version: 13.0 |'; fi");
  EXPECT_EQ(targets().out, "90a-real\n");
}

TEST_F(TrainScript, GivesUpAnNvidiaSmiThatHangsOrFails) {
  add_gpu("");
  add_command("nvidia-smi", "exec sleep 30");
  const Outcome hung = targets();
  EXPECT_EQ(hung.code, 2);
  EXPECT_THAT(hung.err, StartsWith("nvidia-smi has not answered in 1 s"));
  add_command("nvidia-smi", "echo 'Failed to initialize NVML'; exit 255");
  EXPECT_THAT(targets().err,
              StartsWith("/dev/nvidia0: nvidia-smi fails: Failed to initialize NVML: "));
  add_command("nvidia-smi", "echo '[N/A], 580.65.06, GPU-1, vGPU'");
  EXPECT_THAT(targets().err,
              StartsWith("nvidia-smi does not report the compute capability of vGPU"));
  fs::remove(bin_ / "nvidia-smi");
  EXPECT_EQ(targets().code, 2);
  EXPECT_THAT(targets().err, StartsWith("/dev/nvidia0 without nvidia-smi: install"));
}

TEST_F(TrainScript, ConfiguresAMovedCloneAnew) {
  const std::string cache = clone_ / "build/release/CMakeCache.txt";
  const std::string home = "CMAKE_HOME_DIRECTORY:INTERNAL=";
  test::write_file(cache, home + clone_.string() + "\n");
  EXPECT_EQ(train().code, 0);
  EXPECT_THAT(done(), Not(HasSubstr("--fresh")));
  test::write_file(cache, home + "/where/it/was\n");
  EXPECT_EQ(train().code, 0);
  EXPECT_THAT(done(), HasSubstr("--preset release --fresh"));
}

TEST_F(TrainScript, RefusesAFolderInWhichNothingCanBeBuilt) {
  const fs::path odd = directory_.path() / "odd";
  for (const char* const name : {"it's", "a$(b)", "c;d", "e\"f"}) {
    fs::create_directory(odd);
    fs::rename(clone_, odd / name);
    const Outcome outcome =
        test::run_command("cd " + odd.string() + "/* && scripts/train.sh </dev/null");
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("move the clone"), HasSubstr(name)));
    fs::rename(odd / name, clone_);
  }
}

TEST_F(TrainScript, WithoutAGpuBuildsTheProgramOnly) {
  EXPECT_EQ(targets().code, 1);
  for (const char* smi : {"", "echo 'No devices were found'; exit 6", "exit 0"}) {
    if (*smi != '\0') add_command("nvidia-smi", smi);
    const Outcome run = train();
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.err, "");
    EXPECT_THAT(run.out, HasSubstr("quick.toml"));
    EXPECT_THAT(run.out, StartsWith("no cuda:\n"));
    EXPECT_EQ(
        done(),
        "setup\ncmake --preset release --log-level=WARNING -DMUO_CPUS=x86-64-v3 -DMUO_CUDA=AUTO\n"
        "cmake --build --preset release --target muograph\n");
  }
  const Outcome refused = train("--backend cuda");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, StartsWith("train.sh: --backend cuda: there is no GPU here"));
  EXPECT_EQ(done(), "") << "work before the refusal";
}

TEST_F(TrainScript, BuildsForThisCpuOnly) {
  fs::create_directories(root_ / "proc");
  for (const std::string flags : {"avx512f avx512bw avx512cd avx512dq", "avx512fp16", "avx2"}) {
    test::write_file(root_ / "proc/cpuinfo", "flags : " + flags + " avx512vlx\n");
    EXPECT_EQ(train().code, 0);
    EXPECT_THAT(done(), HasSubstr("-DMUO_CPUS=x86-64-v3 "));
  }
  test::write_file(root_ / "proc/cpuinfo", "flags : avx512f avx512bw avx512cd avx512dq avx512vl\n");
  EXPECT_EQ(train().code, 0);
  EXPECT_THAT(done(), HasSubstr("-DMUO_CPUS=x86-64-v4 "));
}

TEST_F(TrainScript, ShowsOnlyWhyTheBuildFailed) {
  add_command("cmake",
              "if [ $1 = --build ]; then echo '[1/2] Building CXX object a.o';"
              " echo 'FAILED: b.o'; echo 'b.cpp:1: error: no'; exit 1; fi");
  const Outcome run = train();
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.out, "FAILED: b.o\nb.cpp:1: error: no\n");
}

TEST_F(TrainScript, BuildsThePlugInForTheGpusThatAreThere) {
  add_gpu(std::string(kT4) + "\n" + kH100);
  add_toolkit("13.0, V13.0.88");
  for (const char* arguments : {"", "--backend cuda", "--backend=cuda", "--backend auto"}) {
    const Outcome run = train(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.err, StartsWith("not used"));
    EXPECT_THAT(run.out, StartsWith("no cuda:\nvisible: GPU-1\ntrain --config "));
    EXPECT_THAT(run.out, HasSubstr("quick_gpu.toml"));
    EXPECT_EQ(
        done(),
        "setup\ncmake --preset release --log-level=WARNING -DMUO_CPUS=x86-64-v3 -DMUO_CUDA=ON "
        "-DMUO_CUDA_ARCHITECTURES=90a-real -DCUDAToolkit_ROOT=" +
            toolkit().string() +
            "\ncmake --build --preset release --target muograph muograph_cuda\n");
  }
  EXPECT_THAT(train("", "CUDA_VISIBLE_DEVICES=7").out, HasSubstr("visible: 7\n"));
  // Sizes for GPUs are used only if the program can use the GPUs.
  EXPECT_THAT(train("", "MUO_TEST_GPU_WORKS=3").out, HasSubstr("quick.toml"));
  EXPECT_THAT(train("--config mine.toml").out, HasSubstr("train --config mine.toml\n"));
  // A host run is treated like one on a machine without GPUs.
  for (const char* arguments : {"--backend host", "--backend=host"}) {
    EXPECT_THAT(train(arguments).out, HasSubstr("quick.toml"));
    EXPECT_THAT(done(), Not(HasSubstr("muograph_cuda")));
  }
}

TEST_F(TrainScript, ConfiguresAnewForAnotherToolkit) {
  add_gpu(kH100);
  add_toolkit("13.1, V13.1.1");
  const fs::path cache = clone_ / "build/release/CMakeCache.txt";
  const std::string key = "CUDAToolkit_NVCC_EXECUTABLE:FILEPATH=";
  test::write_file(cache, key + (toolkit() / "bin/nvcc").string() + "\n");
  train();
  EXPECT_THAT(done(), Not(HasSubstr("--fresh")));
  test::write_file(cache, key + "/opt/other/bin/nvcc\n");
  train();
  EXPECT_THAT(done(), HasSubstr("cmake --preset release --fresh "));
}

TEST_F(TrainScript, TrainsOnTheHostIfTheDriverIsTooOld) {
  add_gpu("9.0, 535.183.06, GPU-1, NVIDIA H100 80GB HBM3");
  test::write_file(clone_ / "build/release/libmuograph_cuda.so", "of another day");
  const Outcome run = train();
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.err, StartsWith("train.sh: training on the CPU: the NVIDIA driver 535.183.06"));
  EXPECT_THAT(run.out, StartsWith("no cuda: the NVIDIA driver 535.183.06 is too old"));
  EXPECT_THAT(run.out, HasSubstr("quick.toml"));
  EXPECT_FALSE(fs::exists(clone_ / "build/release/libmuograph_cuda.so"));
  const Outcome refused = train("--backend cuda");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, StartsWith("train.sh: --backend cuda: the NVIDIA driver 535.183.06"));
  EXPECT_EQ(done(), "") << "work before the refusal";
}

// A toolkit that is too old does not count: the packages are fetched. Here pip fails, or the disk
// is full.
TEST_F(TrainScript, FetchesAToolkitAndSaysWhatFailed) {
  add_gpu(kH100);
  add_toolkit("12.8, V12.8.93");
  add_command(
      "python3",
      "case \"$*\" in *--version*) exit 0;; *nvidia*|*download*) echo 'ERROR: Could not find "
      "a version'; exit 1;; esac");
  const Outcome run = train();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("no cuda: fetch_cuda.sh: pip could not fetch nvidia-cuda-nvcc "
                                 "13.0.88: ERROR: Could not find a version: repeat the command"));
  EXPECT_THAT(done(), StartsWith("setup --cuda\n"));
  EXPECT_THAT(done(), Not(HasSubstr("muograph_cuda")));
  EXPECT_EQ(train("--backend cuda").code, 2);

  add_command(
      "python3",
      "case \"$*\" in *--version*) exit 0;; esac; echo \"WARNING: Retrying after connection "
      "broken by 'SSLError(expired)': /x\"; echo 'ERROR: Could not find a version'; exit 1");
  EXPECT_THAT(train().out, HasSubstr("nvidia-cuda-nvcc 13.0.88: connection broken by "
                                     "'SSLError(expired)': /x: repeat the command"));
  add_command("df", "echo Avail; echo 700");
  EXPECT_THAT(train().out, HasSubstr(" MB of disk, but 700 are free: make room there"));
  add_command("df", "echo Avail; echo 70000");
  add_command("python3", "exit 1");
  EXPECT_THAT(train().out, HasSubstr("python3 has no pip"));
  EXPECT_FALSE(fs::exists(clone_ / "build/third_party/cuda"));
}

// Toolkits come without cuDNN, which has packages of its own.
TEST_F(TrainScript, FetchesAToolkitWithCudnnElseUsesOneWithoutIt) {
  add_gpu(kH100);
  add_toolkit("13.0, V13.0.88");
  fs::remove(toolkit() / "include/cudnn.h");
  add_command("python3", "exit 1");
  const Outcome run = train();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, StartsWith("train.sh: " + toolkit().string() +
                                  " has no cuDNN, so attention does not "
                                  "use it: fetch_cuda.sh: python3 has no pip"));
  EXPECT_THAT(done(), StartsWith("setup --cuda\n"));
  EXPECT_THAT(done(), HasSubstr("-DCUDAToolkit_ROOT=" + toolkit().string() + "\n"));
  EXPECT_THAT(run.out, HasSubstr("quick_gpu.toml"));
  // The path in Debian's package.
  fs::create_directories(root_ / "usr/include/x86_64-linux-gnu");
  test::write_file(root_ / "usr/include/x86_64-linux-gnu/cudnn.h", "");
  EXPECT_EQ(train().err, "");
  EXPECT_THAT(done(), StartsWith("setup\n"));
}

}  // namespace
}  // namespace muo
