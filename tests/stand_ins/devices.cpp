#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "stand_ins/world.h"

namespace muo::stand_in {
namespace {

constexpr int kMisuse = 97;  // exit code
constexpr int kMultiprocessors = 132;

const char* variable(const char* name) {
  return std::getenv(
      name);  // NOLINT(concurrency-mt-unsafe): no thread sets variables once there are GPUs
}
bool is(const char* name, std::string_view value) {
  const char* text = variable(name);
  return text != nullptr && text == value;
}
std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = variable(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

Settings settings_of_environment() {
  return {.queues = std::clamp<std::size_t>(number("CUDA_DEVICE_MAX_CONNECTIONS", 8), 1, 32),
          .in_turn = is("CUDA_STAND_IN_QUEUES", "in_turn"),
          .blocking = number("CUDA_LAUNCH_BLOCKING", 0) != 0,
          .seed = number("CUDA_STAND_IN_SEED", 1),
          .memory = number("SIMT_GPU_MEMORY", std::uint64_t{1} << 40U),
          .gpus = static_cast<int>(number("CUDA_STAND_IN_GPUS", 8)),
          .error = static_cast<cudaError_t>(number("CUDA_STAND_IN_ERROR", cudaSuccess)),
          .driver = static_cast<int>(number("CUDA_STAND_IN_DRIVER", CUDART_VERSION)),
          .nan = variable("SIMT_NAN_SCRATCH") != nullptr,
          .patience = static_cast<double>(number("CUDA_STAND_IN_PATIENCE", 60))};
}

// Number of errors that no thread has read, from ended threads and from misuse().
std::atomic<int> misuses = 0;

// At the end of the process: stops idle queue threads, which LeakSanitizer would have to stop, and
// changes the exit code to 97 if there were misuses.
void end() {
  std::vector<std::thread> leaving;
  {
    const Lock lock;
    for (const auto& gpu : world().gpus)
      for (const auto& queue : gpu->queues)
        leaving.push_back(queue->stop());
  }
  for (std::thread& thread : leaving)
    if (thread.joinable()) thread.join();
  if (misuses == 0) return;
  std::fflush(nullptr);
  _exit(kMisuse);
}

struct OfThread : ThreadState {
  OfThread() = default;
  OfThread(const OfThread&) = delete;
  OfThread& operator=(const OfThread&) = delete;
  ~OfThread() {
    for (const std::string& what : unread)
      misuse(what + " (an error that was not read)");
    unread.clear();
  }
};

}  // namespace

World::World() : settings(settings_of_environment()), random(settings.seed) {
  for (int i = 0; i < settings.gpus; ++i) {
    gpus.push_back(std::make_unique<Gpu>(Gpu{.index = i}));
    for (std::size_t k = 0; k < settings.queues; ++k)
      gpus.back()->queues.push_back(std::make_unique<Queue>());
  }
  std::atexit(end);
}

std::uint64_t World::next_random() {  // splitmix64
  std::uint64_t z = random += 0x9E3779B97F4A7C15U;
  z = (z ^ z >> 30U) * 0xBF58476D1CE4E5B9U;
  z = (z ^ z >> 27U) * 0x94D049BB133111EBU;
  return z ^ z >> 31U;
}

World& world() {
  static World& one = *new World;
  return one;
}

ThreadState& thread_state() {
  thread_local OfThread state;
  return state;
}

cudaError_t failed(cudaError_t error) { return thread_state().error = error; }

cudaError_t wrong(cudaError_t error, const std::string& what) {
  thread_state().unread.push_back(std::string(cudaGetErrorName(error)) + ": " + what);
  return failed(error);
}

void misuse(const std::string& what) {
  std::fprintf(stderr, "CUDA stand-in: %s\n", what.c_str());
  ++misuses;
}

void fault(Gpu& gpu, const std::string& what) {
  misuse(what);
  if (gpu.error == cudaSuccess) gpu.error = cudaErrorIllegalAddress;
  world().finished.notify_all();
}

Gpu& current_gpu() { return *world().gpus[static_cast<std::size_t>(thread_state().gpu)]; }

cudaError_t usable(Gpu& gpu) { return gpu.error == cudaSuccess ? cudaSuccess : failed(gpu.error); }

cudaError_t load(Lock& lock, Gpu& gpu, const void* kernel, const std::string& name) {
  if (gpu.loaded.contains(kernel)) return cudaSuccess;
  if (const cudaError_t error = unsafe("loading a kernel"); error != cudaSuccess) return error;
  wait_for_all(lock, gpu, "loading " + name);
  gpu.loaded.insert(kernel);
  return usable(gpu);
}

void set_compiled(const Compiled& compiled) {
  const Lock lock;
  world().compiled = compiled;
}

cudaError_t refuse_launch(const char* why) {
  std::fprintf(stderr, "CUDA stand-in: launch refused: %s\n", why);
  return wrong(cudaErrorLaunchOutOfResources, why);
}

std::size_t shared_opt_in(const void* kernel) {
  const Lock lock;
  const auto& opt_in = current_gpu().opt_in;
  const auto found = opt_in.find(kernel);
  return found == opt_in.end() ? 0 : found->second;
}

ResidentLaunches::ResidentLaunches() { ++thread_state().resident; }
ResidentLaunches::~ResidentLaunches() { --thread_state().resident; }
bool launches_are_resident() { return thread_state().resident > 0; }

void lose_gpu(cudaStream_t stream) {
  const Lock lock;
  stream->gpu->error = cudaErrorIllegalAddress;
  world().finished.notify_all();
}

}  // namespace muo::stand_in

using namespace muo::stand_in;  // NOLINT(google-build-using-namespace): CUDA's functions are these

cudaError_t cudaGetLastError() {
  thread_state().unread.clear();
  return std::exchange(thread_state().error, cudaSuccess);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define MUO_NAME(name, value, text) \
  case name:                        \
    return #name;
    MUO_CUDA_ERRORS(MUO_NAME)
#undef MUO_NAME
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define MUO_TEXT(name, value, text) \
  case name:                        \
    return text;
    MUO_CUDA_ERRORS(MUO_TEXT)
#undef MUO_TEXT
  }
  return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = world().settings.driver;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const Settings& settings = world().settings;
  *count = settings.gpus;
  if (settings.error == cudaErrorNoKernelImageForDevice) return cudaSuccess;
  return settings.error == cudaSuccess ? cudaSuccess : failed(settings.error);
}
cudaError_t cudaSetDevice(int gpu) {
  const Lock lock;
  if (gpu < 0 || gpu >= world().settings.gpus)
    return wrong(cudaErrorInvalidDevice, "GPU " + std::to_string(gpu));
  thread_state().gpu = gpu;
  return usable(current_gpu());
}
cudaError_t cudaGetDevice(int* gpu) {
  *gpu = thread_state().gpu;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int gpu) {
  const World& all = world();
  if (gpu < 0 || gpu >= all.settings.gpus)
    return wrong(cudaErrorInvalidDevice, "GPU " + std::to_string(gpu));
  *properties = {.name = "the CPU",
                 .uuid = {.bytes = {'s', 'i', 'm', 't', static_cast<char>(gpu)}},
                 .totalGlobalMem = all.settings.memory,
                 .multiProcessorCount = kMultiprocessors,
                 .major = all.compiled.major,
                 .minor = all.compiled.minor};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int gpu) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, gpu); error != cudaSuccess)
    return error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(world().compiled.shared_limit);
      return cudaSuccess;
  }
  return wrong(cudaErrorInvalidValue, "an attribute that the stand-in does not support");
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int gpu) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", gpu);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int own, int other) {
  const World& all = world();
  if (std::max(own, other) >= all.settings.gpus || std::min(own, other) < 0)
    return wrong(cudaErrorInvalidDevice, "a GPU that does not exist");
  *can = own != other && variable("SIMT_GPUS_APART") == nullptr ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned /*flags*/) {
  int can = 0;
  const int own = thread_state().gpu;
  if (const cudaError_t error = cudaDeviceCanAccessPeer(&can, own, other); error != cudaSuccess)
    return error;
  if (can == 0) return wrong(cudaErrorPeerAccessUnsupported, "access to another GPU's memory");
  const Lock lock;
  return current_gpu().peers.insert(other).second ? cudaSuccess
                                                  : failed(cudaErrorPeerAccessAlreadyEnabled);
}

void __cudaRegisterFunction(void** /*module*/, const char* host_function, char* /*device_function*/,
                            const char* device_name, int /*thread_limit*/, uint3* /*thread*/,
                            uint3* /*block*/, dim3* /*block_size*/, dim3* /*grid_size*/,
                            int* /*warp_size*/) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(device_name, nullptr, nullptr, &status), &std::free);
  const Lock lock;
  world().kernels.emplace(host_function, status == 0 ? text.get() : device_name);
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  const Lock lock;
  const auto found = world().kernels.find(kernel);
  if (found == world().kernels.end())
    return wrong(cudaErrorInvalidDeviceFunction, "a kernel that was not registered");
  *name = found->second.c_str();
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const char* name = nullptr;
  if (const cudaError_t error = cudaFuncGetName(&name, kernel); error != cudaSuccess) return error;
  if (world().settings.error != cudaSuccess) return failed(world().settings.error);
  Lock lock;
  *attributes = world().compiled.attributes_of(kernel);
  return load(lock, current_gpu(), kernel, name);
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess)
    return error;
  const Lock lock;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) + attributes.sharedSizeBytes > world().compiled.shared_limit)
    return wrong(cudaErrorInvalidValue, "more shared memory than a block has");
  current_gpu().opt_in[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
// Considers threads and registers only.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, std::size_t /*shared*/) {
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess)
    return error;
  *blocks = std::min(2048 / threads, 65536 / (std::max(attributes.numRegs, 1) * threads));
  return cudaSuccess;
}
