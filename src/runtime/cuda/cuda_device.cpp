#include "runtime/cuda/cuda_device.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string>

#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/kernel_list.h"
#include "runtime/cuda/own_stream.h"

namespace muo {
namespace {

// Freeing never throws: a failure here follows one that was reported, or the driver is gone.
class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(std::int64_t bytes, std::string_view what, int rank, int ordinal)
      : bytes_(bytes), ordinal_(ordinal) {
    MUO_CUDA_CHECK(cudaSetDevice(ordinal));
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    std::size_t free = 0;
    std::size_t total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    MUO_CUDA_CHECK(cudaMalloc(&data_, size), "for ", what, ": ", bytes, " bytes on rank ", rank,
                   " (GPU ", ordinal, ", ", free, " of ", total, " bytes free)");
    zero(size, what);
  }
  ~DeviceBuffer() override {
    static_cast<void>(cudaSetDevice(ordinal_));
    static_cast<void>(cudaFree(data_));
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  [[nodiscard]] std::byte* data() const override { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::int64_t bytes() const override { return bytes_; }

 private:
  // On a stream of its own: whatever waits for the whole GPU, or uses its default stream, spoils
  // the capture of another rank on it.
  void zero(std::size_t size, std::string_view what) const {
    const cuda::OwnStream stream = cuda::make_own_stream();
    MUO_CUDA_CHECK(cudaMemsetAsync(data_, 0, size, stream.get()), "of ", what);
    MUO_CUDA_CHECK(cudaStreamSynchronize(stream.get()), "after zeroing ", what);
  }

  void* data_ = nullptr;
  std::int64_t bytes_;
  int ordinal_;
};

class PinnedBuffer final : public Buffer {
 public:
  PinnedBuffer(std::int64_t bytes, std::string_view what, int rank, int ordinal) : bytes_(bytes) {
    MUO_CUDA_CHECK(cudaSetDevice(ordinal));
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    MUO_CUDA_CHECK(cudaHostAlloc(&data_, size, cudaHostAllocPortable | cudaHostAllocMapped), "for ",
                   what, ": ", bytes, " bytes of pinned memory for rank ", rank);
    std::fill_n(data(), size, std::byte{0});
  }
  ~PinnedBuffer() override { static_cast<void>(cudaFreeHost(data_)); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  [[nodiscard]] std::byte* data() const override { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::int64_t bytes() const override { return bytes_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_;
};

// "0-3,8" as a set; empty if it is no such list.
cpu_set_t cpus_of(const std::string& list) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const char* at = list.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu)
      CPU_SET(static_cast<std::size_t>(cpu), &cpus);
    at = *end == ',' ? end + 1 : end;
  }
  return cpus;
}

// Lets the calling thread run on the cores of the GPU's own NUMA node only, less those that it may
// not use anyway. Where the system does not tell, or leaves none, nothing changes: it is about
// latency, not about results.
void run_near(int ordinal) {
  char bus[32] = {};
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal) != cudaSuccess) return;
  std::string name(bus);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file("/sys/bus/pci/devices/" + name + "/local_cpulist");
  std::string list;
  if (!(file >> list)) return;
  cpu_set_t near = cpus_of(list);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_AND(&near, &near, &allowed);
  if (CPU_COUNT(&near) > 0) static_cast<void>(sched_setaffinity(0, sizeof near, &near));
}

}  // namespace

CudaDevice::CudaDevice(int rank, int ordinal)
    : state_(std::make_shared<CudaDeviceState>(rank, ordinal)) {
  bind_thread();
  cuda::load_listed_kernels();
}

void CudaDevice::bind_thread() {
  MUO_CUDA_CHECK(cudaSetDevice(state_->ordinal), "of rank ", state_->rank);
  run_near(state_->ordinal);
}

void CudaDevice::count_allocation(std::int64_t bytes, std::string_view what) {
  MUO_CHECK(bytes >= 0, bytes, " bytes for ", what);
  MUO_CHECK(!state_->sealed, "allocating ", what, " after start-up");
  MUO_CHECK(!state_->capturing, "allocating ", what, " during a capture");
  ++state_->allocations;
}

std::unique_ptr<Buffer> CudaDevice::allocate(std::int64_t bytes, std::string_view what) {
  count_allocation(bytes, what);
  return std::make_unique<DeviceBuffer>(bytes, what, state_->rank, state_->ordinal);
}

std::unique_ptr<Buffer> CudaDevice::allocate_pinned(std::int64_t bytes, std::string_view what) {
  count_allocation(bytes, what);
  return std::make_unique<PinnedBuffer>(bytes, what, state_->rank, state_->ordinal);
}

std::unique_ptr<Stream> CudaDevice::make_stream(StreamPriority priority) {
  MUO_CHECK(!state_->sealed && !state_->capturing, "streams are made at start-up");
  return make_cuda_stream(state_, priority);
}

std::unique_ptr<Event> CudaDevice::make_event() { return make_cuda_event(*state_); }

}  // namespace muo
