#include "runtime/cuda/cuda_device.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/kernel_list.h"

namespace muo {
namespace {

// Frees memory of cudaMalloc or cudaMallocManaged. Never throws: a failure here follows one that
// was reported, or the driver has shut down.
struct FreeOnDevice {
  int ordinal;
  void operator()(std::byte* data) const {
    static_cast<void>(cudaSetDevice(ordinal));
    static_cast<void>(cudaFree(data));
  }
};
using DeviceMemory = std::unique_ptr<std::byte, FreeOnDevice>;

class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(std::int64_t bytes, std::string_view what, const CudaDeviceState& device)
      : data_(nullptr, {device.ordinal}), bytes_(bytes) {
    MUO_CUDA_CHECK(cudaSetDevice(device.ordinal));
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    std::size_t free = 0;
    std::size_t total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    void* data = nullptr;
    MUO_CUDA_CHECK(cudaMalloc(&data, size), "for ", what, ": ", bytes, " bytes on rank ",
                   device.rank, " (GPU ", device.ordinal, ", ", free, " of ", total,
                   " bytes free)");
    data_.reset(static_cast<std::byte*>(data));
    MUO_CUDA_CHECK(cudaMemsetAsync(data, 0, size, device.zeroing.get()), "of ", what);
    MUO_CUDA_CHECK(cudaStreamSynchronize(device.zeroing.get()), "after zeroing ", what);
  }
  [[nodiscard]] std::byte* data() const override { return data_.get(); }
  [[nodiscard]] std::int64_t bytes() const override { return bytes_; }

 private:
  DeviceMemory data_;
  std::int64_t bytes_;
};

class ManagedBuffer final : public Buffer {
 public:
  ManagedBuffer(int ordinal, std::int64_t bytes) : data_(nullptr, {ordinal}), bytes_(bytes) {
    MUO_CUDA_CHECK(cudaSetDevice(ordinal));
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    void* data = nullptr;
    MUO_CUDA_CHECK(cudaMallocManaged(&data, size, cudaMemAttachGlobal), "for ", bytes, " bytes");
    data_.reset(static_cast<std::byte*>(data));
    MUO_CUDA_CHECK(cudaMemAdvise(data, size, cudaMemAdviseSetPreferredLocation,
                                 {cudaMemLocationTypeDevice, ordinal}));
  }
  [[nodiscard]] std::byte* data() const override { return data_.get(); }
  [[nodiscard]] std::int64_t bytes() const override { return bytes_; }

 private:
  DeviceMemory data_;
  std::int64_t bytes_;
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

// The zeroing stream of the current GPU, shared by its ranks. Anything that synchronises a whole
// GPU, or uses its default stream, would invalidate the capture of another rank on it; and a stream
// per buffer would use up the hardware queues, so that streams of ranks would share one.
std::shared_ptr<CUstream_st> zeroing_stream(int ordinal) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<CUstream_st>> streams;
  const std::lock_guard lock(mutex);
  std::weak_ptr<CUstream_st>& known = streams[ordinal];
  std::shared_ptr<CUstream_st> stream = known.lock();
  if (stream == nullptr) known = stream = cuda::make_own_stream();
  return stream;
}

// Parses "0-3,8"; empty if the text is not such a list.
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

// Restricts the calling thread to those of its allowed cores that are on the GPU's NUMA node. If
// the system does not report them, or none is allowed, nothing changes: this affects latency only,
// not results.
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
  state_->zeroing = zeroing_stream(ordinal);
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
  return std::make_unique<DeviceBuffer>(bytes, what, *state_);
}

std::unique_ptr<Buffer> CudaDevice::allocate_pinned(std::int64_t bytes, std::string_view what) {
  count_allocation(bytes, what);
  return std::make_unique<PinnedBuffer>(bytes, what, state_->rank, state_->ordinal);
}

std::unique_ptr<Stream> CudaDevice::make_stream(StreamPriority priority) {
  MUO_CHECK(!state_->sealed && !state_->capturing, "streams are made at start-up");
  return make_cuda_stream(state_, priority);
}

std::unique_ptr<Buffer> allocate_managed(int ordinal, std::int64_t bytes) {
  return std::make_unique<ManagedBuffer>(ordinal, bytes);
}

std::unique_ptr<Event> CudaDevice::make_event() { return make_cuda_event(*state_); }

}  // namespace muo
