#include "runtime/plugin.h"

#include <chrono>
#include <string>

#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nccl_communicator.h"
#include "runtime/cuda/nvml.h"
#include "runtime/cuda/peer_access.h"
#include "runtime/cuda/peer_communicator.h"
#include "runtime/cuda/probe.h"
#include "runtime/cuda/recorded_graph.h"

namespace muo {
namespace {

std::string version_text(int version) {  // 13000: "13.0"
  return concat(version / 1000, ".", version % 1000 / 10);
}

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties{};
  MUO_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return properties;
}

std::string name(int index) { return properties_of(index).name; }

std::string describe(int index) {
  const cudaDeviceProp properties = properties_of(index);
  return concat(properties.name, ", ", properties.totalGlobalMem >> 30, " GiB, ",
                properties.multiProcessorCount, " multiprocessors, compute capability ",
                properties.major, ".", properties.minor);
}

// Assumes that the GPUs of one machine are of one kind, or that CUDA_VISIBLE_DEVICES selects such.
std::string missing_kernels(int count) {
  for (int i = 0; i < count; ++i) {
    MUO_CUDA_CHECK(cudaSetDevice(i));
    if (!cuda::has_kernels_for_current_device())
      return concat(
          "GPU ", i, " (", describe(i),
          ") has an architecture that this build does not include: `scripts/train.sh` builds for "
          "this machine's GPUs, -DMUO_CUDA_ARCHITECTURES=<capability without the dot>-real "
          "for others");
  }
  return {};
}

std::string missing() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  int driver = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  switch (status) {
    case cudaSuccess:
      return count > 0 ? missing_kernels(count) : "CUDA finds no GPU";
    case cudaErrorInsufficientDriver:
      return driver == 0 ? concat(
                               "no NVIDIA driver (libcuda.so.1 does not load); install one for "
                               "CUDA ",
                               version_text(CUDART_VERSION), " or newer")
                         : concat("the NVIDIA driver is for CUDA ", version_text(driver),
                                  ", this build needs ", version_text(CUDART_VERSION),
                                  ": update the driver");
    case cudaErrorStubLibrary:
      return "libcuda.so.1 is the toolkit's stub, not a driver: remove it from the library path";
    case cudaErrorNoDevice:
      return "the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES empty?)";
    case cudaErrorSystemNotReady:  // GPUs with NVSwitch
      return "CUDA needs NVIDIA's fabric manager, which is not running: `systemctl start "
             "nvidia-fabricmanager`";
    default:
      return concat("cannot initialise CUDA: ", cudaGetErrorName(status), " (",
                    cudaGetErrorString(status), "): see `dmesg | grep -i nvrm`");
  }
}

struct Memory {
  std::size_t free = 0, total = 0;
};
Memory memory_of(int index) {
  Memory memory;
  MUO_CUDA_CHECK(cudaSetDevice(index));
  MUO_CUDA_CHECK(cudaMemGetInfo(&memory.free, &memory.total));
  return memory;
}
std::int64_t available_memory(int index) {
  return static_cast<std::int64_t>(memory_of(index).free);
}
std::int64_t total_memory(int index) { return static_cast<std::int64_t>(memory_of(index).total); }

std::string no_peer_access(int count) {
  for (int own = 0; own < count; ++own)
    for (int other = 0; other < count; ++other) {
      if (other != own && !can_access(own, other))
        return concat("GPU ", own, " cannot access the memory of GPU ", other);
    }
  return {};
}

std::unique_ptr<Device> make_device(int rank, int index) {
  return std::make_unique<CudaDevice>(rank, index);
}

std::unique_ptr<CommunicatorGroup> make_communicators(CommunicatorKind kind,
                                                      const CommunicatorMembers& members,
                                                      std::chrono::milliseconds deadline) {
  switch (kind) {
    case CommunicatorKind::kPeer:
      return make_peer_communicators(members, deadline);
    case CommunicatorKind::kNccl:
      return nccl::make_nccl_communicators(members);
    case CommunicatorKind::kHost:
      break;
  }
  throw InputError("--comm host: the ranks are GPUs; use --comm peer or --comm nccl");
}

const BackendPlugin kPlugin{.missing = missing,
                            .device_count = device_count,
                            .name = name,
                            .describe = describe,
                            .available_memory = available_memory,
                            .total_memory = total_memory,
                            .read_power = cuda::read_power,
                            .record_nodes = cuda::record_nodes,
                            .no_peer_access = no_peer_access,
                            .make_device = make_device,
                            .make_communicators = make_communicators,
                            .allocate_managed = allocate_managed,
                            .timeout = std::chrono::seconds(20)};

}  // namespace
}  // namespace muo

extern "C" const muo::BackendPlugin* muograph_backend_plugin() { return &muo::kPlugin; }
