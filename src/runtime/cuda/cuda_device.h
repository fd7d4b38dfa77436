#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/cuda/own_stream.h"
#include "runtime/device.h"

namespace muo {

// State shared by a GPU and its streams.
struct CudaDeviceState {
  CudaDeviceState(int rank_, int ordinal_) : rank(rank_), ordinal(ordinal_) {}

  const int rank;
  const int ordinal;                     // CUDA's number of the GPU; several ranks may share one
  std::shared_ptr<CUstream_st> zeroing;  // the stream that zeroes new memory, one per GPU
  // Read by every thread that allocates.
  std::atomic<bool> capturing = false;
  std::atomic<bool> sealed = false;
  std::atomic<std::int64_t> captures = 0;  // number of captures begun
  std::atomic<std::int64_t> allocations = 0;
};

// A GPU as seen by one rank, with every kernel of this library loaded. The rank's thread launches
// and synchronises; buffers, streams and events may be made and freed by any thread. Streams may
// outlive the device. Nothing here waits for a whole GPU or uses its default stream, except that
// freeing a buffer or a stream may (cudaFree): do not free while another rank on the GPU captures
// or runs a collective.
class CudaDevice final : public Device {
 public:
  CudaDevice(int rank, int ordinal);

  [[nodiscard]] int rank() const override { return state_->rank; }
  void bind_thread() override;
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::int64_t bytes,
                                                 std::string_view what) override;
  [[nodiscard]] std::unique_ptr<Buffer> allocate_pinned(std::int64_t bytes,
                                                        std::string_view what) override;
  [[nodiscard]] std::unique_ptr<Stream> make_stream(StreamPriority priority) override;
  [[nodiscard]] std::unique_ptr<Event> make_event() override;
  void seal() override { state_->sealed = true; }
  [[nodiscard]] std::int64_t allocations() const override { return state_->allocations; }

 private:
  void count_allocation(std::int64_t bytes, std::string_view what);

  std::shared_ptr<CudaDeviceState> state_;
};

// For BackendPlugin.
std::unique_ptr<Buffer> allocate_managed(int ordinal, std::int64_t bytes);

std::unique_ptr<Stream> make_cuda_stream(std::shared_ptr<CudaDeviceState> device,
                                         StreamPriority priority);
std::unique_ptr<Event> make_cuda_event(const CudaDeviceState& device);

}  // namespace muo
