#include "runtime/cuda/nvml.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>

#include "runtime/cuda/find_function.h"
#include "runtime/cuda/gpu_identity.h"

struct nvmlDevice_st;  // NVML's own

namespace muo::cuda {
namespace {

using Handle = nvmlDevice_st*;

// The part of NVML's C interface that is used, declared here because its header is in few toolkits.
struct Nvml {
  static constexpr int kSuccess = 0;
  static constexpr int kSmClock = 1;

  int (*init)() = nullptr;
  int (*handle_by_uuid)(const char* uuid, Handle* device) = nullptr;
  int (*energy)(Handle device, unsigned long long* millijoules) = nullptr;
  int (*clock)(Handle device, int type, unsigned* megahertz) = nullptr;
  int (*power_limit)(Handle device, unsigned* milliwatts) = nullptr;
  bool works = false;

  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return;
    const auto find = [library](const char* name, auto*& function) {
      return find_function(library, name, function);
    };
    works = find("nvmlInit_v2", init) && find("nvmlDeviceGetHandleByUUID", handle_by_uuid) &&
            find("nvmlDeviceGetTotalEnergyConsumption", energy) &&
            find("nvmlDeviceGetClockInfo", clock) &&
            find("nvmlDeviceGetEnforcedPowerLimit", power_limit) && init() == kSuccess;
  }

  // Null if NVML does not know the GPU. NVML's indices ignore CUDA_VISIBLE_DEVICES, so the GPU is
  // found by its UUID.
  [[nodiscard]] Handle handle_of(int gpu) const {
    Handle handle = nullptr;
    const std::string uuid = identity_text(identity_of(gpu));
    return works && handle_by_uuid(uuid.c_str(), &handle) == kSuccess ? handle : nullptr;
  }
};

}  // namespace

std::optional<PowerReading> read_power(int gpu) {
  static const Nvml nvml;
  static std::mutex mutex;
  static std::map<int, Handle> handles;
  const std::lock_guard lock(mutex);
  const auto [known, is_new] = handles.try_emplace(gpu);
  if (is_new) known->second = nvml.handle_of(gpu);
  const Handle handle = known->second;
  unsigned long long millijoules = 0;
  unsigned megahertz = 0, milliwatts = 0;
  if (handle == nullptr || nvml.energy(handle, &millijoules) != Nvml::kSuccess ||
      nvml.clock(handle, Nvml::kSmClock, &megahertz) != Nvml::kSuccess)
    return std::nullopt;
  static_cast<void>(nvml.power_limit(handle, &milliwatts));
  return PowerReading{.joules = 1e-3 * static_cast<double>(millijoules),
                      .clock_mhz = static_cast<double>(megahertz),
                      .limit_watts = 1e-3 * milliwatts};
}

}  // namespace muo::cuda
