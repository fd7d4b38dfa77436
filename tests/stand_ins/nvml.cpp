// NVML for the GPUs of the CUDA stand-in: GPU i consumes 300 + 10 i watts at 1500 + 15 i MHz. The
// energy counter changes every 20 ms, as that of a driver does. NVML_STAND_IN=failed: the library
// cannot be initialised; NVML_STAND_IN=no_energy: the GPUs have no energy counter.
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>

struct nvmlDevice_st {
  int gpu;
};

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3,
              kNotFound = 6, kSmClock = 1;
constexpr int kGpus = 64;

bool is_initialised = false;

std::string_view setting() {
  const char* text = std::getenv("NVML_STAND_IN");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "" : text;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  is_initialised = setting() != "failed";
  return is_initialised ? kSuccess : kUninitialized;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_st** device) {
  static nvmlDevice_st devices[kGpus];
  if (!is_initialised) return kUninitialized;
  const std::string text = uuid;  // "GPU-73696d74-GG00-...": "simt" and the number
  if (text.size() != 40 || !text.starts_with("GPU-73696d74-")) return kNotFound;
  const int gpu = std::stoi(text.substr(13, 2), nullptr, 16);
  if (gpu >= kGpus) return kNotFound;
  devices[gpu].gpu = gpu;
  *device = &devices[gpu];
  return kSuccess;
}

int nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_st* device, unsigned long long* millijoules) {
  if (setting() == "no_energy") return kNotSupported;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto ticks = now / std::chrono::milliseconds(20);
  *millijoules = static_cast<unsigned long long>(ticks) * 20 *
                 static_cast<unsigned long long>(300 + 10 * device->gpu);
  return kSuccess;
}

int nvmlDeviceGetClockInfo(nvmlDevice_st* device, int type, unsigned* megahertz) {
  if (type != kSmClock) return kInvalidArgument;
  *megahertz = 1500U + 15U * static_cast<unsigned>(device->gpu);
  return kSuccess;
}

int nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_st* /*device*/, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return kSuccess;
}

}  // extern "C"
