#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Owns a range of device or pinned host memory, zero-filled, aligned to kAlignment.
class Buffer {
 public:
  virtual ~Buffer() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
};

inline constexpr std::int64_t kAlignment = 256;  // as cudaMalloc; enough for 128-bit loads and TMA

// One device, as seen by the one thread that drives it.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual int rank() const = 0;  // in the DeviceGroup
  // Makes the calling thread the one that drives this device. Called once per thread, before
  // anything else.
  virtual void bind_thread() = 0;
  // `what` names the memory in errors. Throws Error if there is not enough memory, after seal(), or
  // while a stream of this device captures.
  [[nodiscard]] virtual std::unique_ptr<Buffer> allocate(std::int64_t bytes,
                                                         std::string_view what) = 0;
  // Host memory that the device can copy from and to.
  [[nodiscard]] virtual std::unique_ptr<Buffer> allocate_pinned(std::int64_t bytes,
                                                                std::string_view what) = 0;
  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(StreamPriority priority) = 0;
  [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
  virtual void seal() = 0;                                     // ends start-up: no more allocations
  [[nodiscard]] virtual std::int64_t allocations() const = 0;  // number so far, both kinds
};

}  // namespace muo
