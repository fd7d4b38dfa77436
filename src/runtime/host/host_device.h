#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string_view>

#include "runtime/device.h"

namespace muo {

struct HostDeviceOptions {
  std::optional<std::uint64_t> random_order_seed = {};  // see GroupOptions
  // Work can be captured but not run; device memory has addresses but no bytes. Pinned memory is
  // real.
  bool trace_only = false;
  bool check_races = true;  // false only in tests that plant a race
};

// State shared by a device and its streams.
struct HostDeviceState {
  HostDeviceState(int rank_, const HostDeviceOptions& options_);

  const int rank;
  const HostDeviceOptions options;
  std::mt19937_64 random;
  bool capturing = false;  // one of the streams captures
  bool sealed = false;
  std::int64_t allocations = 0;
  std::uintptr_t next_fake_address;
};

// A virtual device, whose processor is the thread that drives it. Streams may outlive it.
class HostDevice final : public Device {
 public:
  explicit HostDevice(int rank, const HostDeviceOptions& options = {});

  [[nodiscard]] int rank() const override { return state_->rank; }
  void bind_thread() override {}
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

  std::shared_ptr<HostDeviceState> state_;
};

}  // namespace muo
