#include "trainer/run/backend.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/terminal.h"
#include "base/threads.h"
#include "kernels/attention_method.h"
#include "trainer/run/described_gpu.h"
#include "trainer/run/run_memory.h"

namespace muo::trainer {
namespace {

constexpr int kMaxDefaultDevices = 4;

void check_environment() {
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");  // NOLINT(concurrency-mt-unsafe)
  if (blocking != nullptr && std::string_view(blocking) != "0")
    throw input_error(
        "CUDA_LAUNCH_BLOCKING={}: ranks that wait for each other would deadlock: unset it",
        blocking);
}

// Checked first, because loading the CUDA backend takes a tenth of a second. A plug-in that
// replaces the backend (MUO_CUDA_PLUGIN) needs no driver.
bool driver_loads() {
  return std::getenv("MUO_CUDA_PLUGIN") != nullptr ||  // NOLINT(concurrency-mt-unsafe)
         library_loads("libcuda.so.1");
}

std::string why_no_cuda() {
  const bool driver = driver_loads();
  const LoadedPlugin cuda = driver ? load_cuda() : LoadedPlugin{};
  if (cuda.plugin != nullptr) return {};
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* reason = std::getenv("MUO_NO_CUDA"); reason != nullptr && *reason != '\0')
    return reason;
  if (!driver)
    return "the driver library libcuda.so.1 cannot be loaded: start a container with `docker "
           "run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; otherwise install the "
           "full "
           "driver, on Ubuntu `apt-get install nvidia-driver-580-server`";
  return cuda.missing.starts_with("this build has no")
             ? cuda.missing + ": build it with `scripts/train.sh`, or install muograph-cuda"
             : cuda.missing;
}

class Chooser {
 public:
  Chooser(DeviceOptions& options, std::vector<std::string>& notes)
      : options_(options), notes_(notes) {}

  GroupOptions run() {
    static_cast<void>(attention_kernels_of_environment());  // throws for an invalid value
    backend();
    devices();
    group_.ranks_per_device = static_cast<int>(options_.ranks_per_device);
    group_.world = static_cast<int>(*options_.count * options_.ranks_per_device);
    if (options_.processes != nullptr) group_.world = options_.processes->world();
    group_.processes = options_.processes;
    group_.exchange = options_.exchange;
    communicator();
    return group_;
  }

 private:
  template <class... Values>
  void note(fmt::format_string<Values...> format, Values&&... values) {
    notes_.push_back(fmt::format(format, std::forward<Values>(values)...));
  }

  void backend() {
    if (!options_.described.empty()) {
      group_.plugin =
          &described_backend(described_gpu(options_.described), options_.described_memory);
      options_.backend = Backend::kCuda;
      options_.count = options_.count.value_or(1);
      return;
    }
    if (options_.backend == Backend::kHost) return;
    const bool asked = options_.backend == Backend::kCuda;
    if (!asked && !driver_loads()) {
      options_.backend = Backend::kHost;
      note("backend: host{}", gpus_here().empty() ? " (no NVIDIA driver)" : "");
      return;
    }
    check_environment();
    const LoadedPlugin cuda = load_cuda();
    if (asked && cuda.plugin == nullptr) throw InputError("--backend cuda: " + cuda.missing);
    group_.plugin = cuda.plugin;
    options_.backend = cuda.plugin != nullptr ? Backend::kCuda : Backend::kHost;
    // If there are GPUs, warn_of_unused_gpus() reports the reason instead.
    if (!asked)
      note(
          "backend: {}{}", name_of(*options_.backend),
          cuda.plugin != nullptr || !gpus_here().empty() ? "" : fmt::format(" ({})", cuda.missing));
  }

  void devices() {
    const bool host = group_.plugin == nullptr;
    if (host && options_.ranks_per_device != 1)
      throw InputError("--ranks-per-device: the host has virtual devices only; give --devices");
    const int available = host ? 0 : gpus_of_this_process();
    if (!options_.count) {
      options_.count = host ? std::max(1, default_devices() / options_.processes_here) : available;
      if (host)
        note("devices: {} ({} cores, at most {})", *options_.count, usable_cores(),
             kMaxDefaultDevices);
      else
        note("devices: {}, {}", available,
             options_.processes_here == 1 ? "all" : "this process's share");
    }
    if (!host && *options_.count > available)
      throw input_error(
          "--devices {}: there {} only {}; to run several ranks on each GPU, give "
          "--ranks-per-device",
          *options_.count, available == 1 ? "is" : "are", available);
  }

  // Each process on a host takes its share of the GPUs, unless the launcher shows it only one.
  int gpus_of_this_process() {
    const int available = group_.plugin->device_count();
    if (available == 1 || options_.processes_here == 1) return available;
    const int each = available / options_.processes_here;
    if (each == 0)
      throw input_error("{} processes on this host, but {} GPUs: start at most one per GPU",
                        options_.processes_here, available);
    group_.first_device = options_.process_here * each;
    return each;
  }

  // A single rank communicates with no other rank, so it does not need NCCL.
  void communicator() {
    std::optional<Comm>& comm = options_.comm;
    const bool alone = options_.processes_here == 1 && options_.processes == nullptr;
    if (group_.plugin == nullptr) {
      if (alone && comm == Comm::kMpi)
        throw InputError(
            "--comm mpi: needs several processes: start them with `mpirun -n 2 muograph train "
            "...`");
      const Comm fits = alone ? Comm::kHost : Comm::kMpi;
      if (comm && comm != fits)
        throw input_error("--comm {}: {}", name_of(*comm),
                          comm == Comm::kHost ? "works within one process only: give mpi"
                                              : "requires --backend cuda");
      comm = fits;
      return;
    }
    if (comm == Comm::kHost || comm == Comm::kMpi)
      throw input_error("--comm {}: requires --backend host", name_of(*comm));
    if (!alone) {
      if (comm == Comm::kPeer || options_.ranks_per_device > 1)
        throw input_error(
            "{}: works within one process only: give --comm nccl and one GPU per rank",
            comm == Comm::kPeer ? "--comm peer" : "--ranks-per-device");
      comm = Comm::kNccl;
    }
    if (!comm) {
      comm = group_.world == 1 || options_.ranks_per_device > 1 ? Comm::kPeer : Comm::kNccl;
      if (group_.world > 1) note("comm: {}", name_of(*comm));
    }
    if (comm == Comm::kPeer) require_peer_access();
    group_.communicator = comm == Comm::kPeer ? CommunicatorKind::kPeer : CommunicatorKind::kNccl;
  }

  void require_peer_access() {
    const std::string why = group_.plugin->no_peer_access(static_cast<int>(*options_.count));
    if (why.empty()) return;
    if (options_.ranks_per_device > 1)
      throw input_error(
          "--comm peer: {}, and NCCL serves one rank per GPU: give --ranks-per-device 1 or "
          "--devices 1",
          why);
    options_.comm = Comm::kNccl;
    note("comm: nccl ({})", why);
  }

  DeviceOptions& options_;
  std::vector<std::string>& notes_;
  GroupOptions group_;
};

// The smallest memory of the process's GPUs, less the bytes `kept` for other uses, per rank.
std::int64_t min_per_rank(const GroupOptions& group, std::int64_t (*memory)(int index),
                          std::int64_t kept) {
  std::int64_t least = memory(0);
  for (int i = 1; i < group.devices_here(); ++i)
    least = std::min(least, memory(i));
  return std::max<std::int64_t>(0, least - kept) / group.ranks_per_device;
}

namespace fs = std::filesystem;

std::string_view field_of(std::string_view line, std::string_view key) {
  if (!line.starts_with(key)) return {};
  const std::size_t begin = line.find_first_not_of(" \t", key.size());
  return begin == std::string_view::npos ? std::string_view() : line.substr(begin);
}

}  // namespace

GroupOptions choose_devices(DeviceOptions& options, std::vector<std::string>& notes) {
  return Chooser(options, notes).run();
}

std::string unused_gpus() {
  const std::vector<Gpu> gpus = gpus_here();
  if (gpus.empty()) return {};
  const std::string why = why_no_cuda();
  if (why.empty()) return {};
  return fmt::format("GPU{} not used: {}: {}", gpus.size() == 1 ? "" : "s", gpu_names(gpus), why);
}

void warn_of_unused_gpus(std::optional<Backend> asked, const GroupOptions& group, std::FILE* out) {
  if (asked || group.plugin != nullptr) return;
  const std::string warning = unused_gpus();
  if (warning.empty()) return;
  say(out, warning + "\n");
  static_cast<void>(std::fflush(out));
}

// RTLD_NODELETE: the CUDA libraries never free what they allocate on loading, and a leak checker
// could not attribute that memory to them once they are unloaded.
bool library_loads(const char* library) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return false;
  dlclose(handle);
  return true;
}

int default_devices() { return std::min(usable_cores(), kMaxDefaultDevices); }

std::int64_t max_pass_tokens(const GroupOptions& group) {
  return group.plugin == nullptr ? 4096 : 65536;
}

std::int64_t head_chunk_bytes(const GroupOptions& group) {
  constexpr std::int64_t kDeviceHeadChunk = std::int64_t{1} << 30;  // 16384 rows of 32768 in bf16
  return group.plugin == nullptr ? model::kHostHeadChunk : kDeviceHeadChunk;
}

std::int64_t available_memory_per_rank(const GroupOptions& group) {
  if (group.plugin == nullptr) {
    const int ranks = group.local().count;
    return tensor_bytes(process_memory(group, ranks).bytes, ranks, false) / ranks;
  }
  return min_per_rank(group, group.plugin->available_memory, kLibraryMemory);
}

std::int64_t memory_to_plan_per_rank(const GroupOptions& group) {
  if (group.plugin == nullptr) return available_memory_per_rank(group);
  return min_per_rank(group, group.plugin->total_memory, kLibraryMemory + kContextMemory);
}

std::vector<Gpu> gpus_here() {
  const char* const elsewhere = std::getenv("MUO_GPU_ROOT");  // NOLINT(concurrency-mt-unsafe)
  const fs::path root = elsewhere != nullptr && *elsewhere != '\0' ? elsewhere : "/";
  std::map<std::int64_t, Gpu> by_number;
  for (const fs::path& file : entries_of(root / "dev")) {
    const std::string name = file.filename();
    if (!name.starts_with("nvidia")) continue;
    // nvidiactl and nvidia-uvm can exist without a GPU.
    if (const auto number = whole_number(std::string_view(name).substr(6)))
      by_number[*number].device = "/dev/" + name;
  }
  std::vector<Gpu> out;
  for (const fs::path& folder : entries_of(root / "proc/driver/nvidia/gpus")) {
    std::ifstream in(folder / "information");
    std::string model;
    std::optional<std::int64_t> number;
    for (std::string line; std::getline(in, line);) {
      if (const auto text = field_of(line, "Model:"); !text.empty()) model = text;
      if (const auto text = field_of(line, "Device Minor:"); !text.empty())
        number = whole_number(text);
    }
    if (number)
      by_number[*number].model = std::move(model);
    else
      out.push_back({.device = {}, .model = std::move(model)});
  }
  for (auto& [number, gpu] : by_number)
    out.push_back(std::move(gpu));
  return out;
}

std::string gpu_names(const std::vector<Gpu>& gpus) {
  std::string out;
  for (auto first = gpus.begin(); first != gpus.end();) {
    const auto last =
        std::find_if(first, gpus.end(), [&](const Gpu& gpu) { return gpu.model != first->model; });
    std::vector<std::string> devices;
    for (auto gpu = first; gpu != last; ++gpu)
      if (!gpu->device.empty()) devices.push_back(gpu->device);
    if (!out.empty()) out += ", ";
    if (last - first > 1) out += fmt::format("{} x ", last - first);
    out += first->model.empty() ? "NVIDIA GPU" : first->model;
    if (!devices.empty()) out += fmt::format(" ({})", fmt::join(devices, ", "));
    first = last;
  }
  return out;
}

}  // namespace muo::trainer
