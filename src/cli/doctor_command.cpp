#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/statvfs.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/system_limits.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "kernels/host_kernels.h"
#include "runtime/comm/process_exchange.h"
#include "runtime/plugin.h"
#include "trainer/run/backend.h"
#include "trainer/run/device_rates.h"
#include "trainer/run/run_config.h"
#include "trainer/run/tuning.h"

namespace muo::cli {
namespace {

// Facts about this machine, one per line, with a remedy for anything that is missing.
struct Diagnosis {
  std::string text;
  bool healthy = true;  // false: training cannot work on this machine
};

constexpr double kGiB = 1 << 30;

std::string line(std::string_view what, std::string_view fact) {
  return fmt::format("{:<14}{}\n", what, fact);
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string text; std::getline(in, text);)
    if (text.rfind("model name", 0) == 0) return text.substr(text.find(':') + 2);
  return "unknown";
}

std::string instruction_sets() {
  std::string out;
  const auto add = [&](bool has, std::string_view name) {
    if (has) out += fmt::format("{}{}", out.empty() ? "" : ", ", name);
  };
#ifdef __x86_64__
  add(__builtin_cpu_supports("avx2") != 0, "AVX2");
  add(__builtin_cpu_supports("fma") != 0, "FMA");
  add(__builtin_cpu_supports("avx512f") != 0, "AVX-512");
  add(__builtin_cpu_supports("avx512vnni") != 0, "AVX-512 VNNI");
  add(__builtin_cpu_supports("avx512bf16") != 0, "AVX-512 BF16");
  return out.empty() ? "none of AVX2 and later" : out;
#elif defined(__aarch64__)
  add(true, "NEON");
  add((getauxval(AT_HWCAP) & HWCAP_SVE) != 0, "SVE");
  add((getauxval(AT_HWCAP2) & HWCAP2_SVE2) != 0, "SVE2");
  add((getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0, "BF16");
  return out;
#else
  return "unknown";
#endif
}

std::string cores() {
  const int usable = usable_cores();
  const std::optional<CpuQuota> quota = cpu_quota();
  return fmt::format("{0} usable{1}: --devices {0} is enough", usable,
                     quota && quota->cores == usable
                         ? fmt::format(" (quota of the cgroup {})", quota->group)
                         : "");
}

std::string memory() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  std::int64_t total_kib = 0;
  in >> key >> total_kib;
  const AvailableMemory available = available_memory();
  return fmt::format("{:.1f} GiB, {:.1f} GiB available{}",
                     static_cast<double>(total_kib) * 1024 / kGiB,
                     static_cast<double>(available.bytes) / kGiB, available.limit);
}

std::string disk() {
  struct statvfs stat {};
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (error || statvfs(here.c_str(), &stat) != 0) return "unknown";
  return fmt::format("{:.1f} GiB free in {}",
                     static_cast<double>(stat.f_bavail) * static_cast<double>(stat.f_frsize) / kGiB,
                     here);
}

// One line for each GPU, with the known facts.
std::string gpu_lines(const std::vector<trainer::Gpu>& gpus) {
  if (gpus.empty()) return line("GPU", "none (no /dev/nvidia*)");
  std::string out;
  for (const trainer::Gpu& gpu : gpus) {
    std::string fact = gpu.device.empty() ? "no /dev/nvidia*" : gpu.device;
    if (!gpu.model.empty()) {
      const auto peak = trainer::gpu_peak_flops(gpu.model);
      fact += fmt::format(": {}, {}", gpu.model,
                          peak ? trainer::flops_text(*peak) + " in bf16 by its maker"
                               : "peak unknown: its mfu will be null");
    }
    out += line(out.empty() ? "GPU" : "", fact);
  }
  return out;
}

std::string gemm_rate() {
  const int devices = trainer::default_devices();
  const auto rate = [&](DType dtype) {
    return trainer::flops_text(trainer::measure_gemm_rate({.world = devices}, dtype));
  };
  return fmt::format("{} in fp32, {} in bf16 on {} device{}", rate(DType::kF32), rate(DType::kBF16),
                     devices, devices == 1 ? "" : "s together");
}

std::string driver() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string version;
  std::getline(in, version);
  const bool library = trainer::library_loads("libcuda.so.1");
  if (!library) return version.empty() ? "none" : version + "; libcuda.so.1 does not load";
  return version.empty() ? "libcuda.so.1 loads" : version;
}

std::string cuda_libraries() {
  std::string out;
  for (const char* library :
       {"libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"})
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", library,
                       trainer::library_loads(library) ? "yes" : "no");
  return out;
}

std::string cuda_backend() {
  if (const std::string unused = trainer::unused_gpus(); !unused.empty())
    return line("CUDA backend", unused);
  const LoadedPlugin cuda = load_cuda();
  if (cuda.plugin == nullptr) return line("CUDA backend", "not usable: " + cuda.missing);
  std::string out;
  for (int i = 0; i < cuda.plugin->device_count(); ++i)
    out +=
        line(i == 0 ? "CUDA backend" : "", fmt::format("GPU {}: {}", i, cuda.plugin->describe(i)));
  for (bool first = true; const std::string& tuned : trainer::describe_tuning())
    out += line(std::exchange(first, false) ? "tuned" : "", tuned);
  return out;
}

std::string gpu_facts() {
  return gpu_lines(trainer::gpus_here()) + line("driver", driver()) +
         line("CUDA", cuda_libraries()) + cuda_backend();
}

Diagnosis diagnose() {
  Diagnosis out;
  out.text += line("CPU", cpu_model());
  out.text += line("", instruction_sets());
  out.text += line("host kernels", describe_host_kernels());
  out.text += line("compiled by", fmt::format("{} {}",
#ifdef __clang__
                                              "clang",
#else
                                              "gcc",
#endif
                                              __VERSION__));
  out.text += line("cores", cores());
  out.text += line("memory", memory());
  out.text += line("disk", disk());
  out.text += line("GEMM", describe_gemm_library());
  try {
    out.text += line("", gemm_rate());
  } catch (const std::exception& error) {
    out.healthy = false;
    out.text += line("", fmt::format("BROKEN: {}", error.what()));
  }
  out.text += line("MPI", describe_mpi());
  out.text += gpu_facts();
  if (!out.healthy)
    out.text += "\nNot ready: see BROKEN above.\n";
  else if (trainer::unused_gpus().empty())
    out.text += "\nReady to train.\n";
  else
    out.text += "\nReady to train, but on the CPU only: see CUDA backend above.\n";
  return out;
}

}  // namespace

int run_command(const trainer::DoctorOptions& options) {
  const Diagnosis diagnosis =
      options.gpu_only ? Diagnosis{.text = gpu_facts(), .healthy = load_cuda().plugin != nullptr}
                       : diagnose();
  static_cast<void>(std::fputs(diagnosis.text.c_str(), stdout));
  return diagnosis.healthy ? 0 : 3;
}

}  // namespace muo::cli
