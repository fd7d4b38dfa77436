#include "runtime/host/host_device.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"
#include "runtime/host/host_stream.h"
#include "runtime/memory/fake_memory.h"

namespace muo {
namespace {

// Anonymous pages: zero-filled, first touched by the thread that uses them, and an impossible size
// is an error code in every build (a sanitizer's malloc would abort).
class HostBuffer final : public Buffer {
 public:
  HostBuffer(std::int64_t bytes, std::string_view what)
      : bytes_(bytes), mapped_(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))) {
    void* pages =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUO_CHECK(pages != MAP_FAILED, "no memory for ", what, ": ", bytes, " bytes");
    data_ = static_cast<std::byte*>(pages);
    // A hint only: without huge pages a run is a little slower.
    static_cast<void>(madvise(pages, mapped_, MADV_HUGEPAGE));
  }
  ~HostBuffer() override { munmap(data_, mapped_); }  // cannot fail for a valid range
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] std::int64_t bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_;
  std::size_t mapped_;
  std::byte* data_ = nullptr;
};

class FakeBuffer final : public Buffer {
 public:
  FakeBuffer(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}
  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] std::int64_t bytes() const override { return bytes_; }

 private:
  std::byte* data_;
  std::int64_t bytes_;
};

}  // namespace

HostDeviceState::HostDeviceState(int rank_, const HostDeviceOptions& options_)
    : rank(rank_),
      options(options_),
      random(options_.random_order_seed.value_or(0) * 1000003U + static_cast<std::uint64_t>(rank_)),
      next_fake_address(fake_base(rank_, FakeOwner::kDevice)) {}

HostDevice::HostDevice(int rank, const HostDeviceOptions& options)
    : state_(std::make_shared<HostDeviceState>(rank, options)) {}

void HostDevice::count_allocation(std::int64_t bytes, std::string_view what) {
  MUO_CHECK(bytes >= 0, what, ": ", bytes, " bytes");
  MUO_CHECK(!state_->sealed, what, ": ", bytes, " bytes requested after start-up");
  MUO_CHECK(!state_->capturing, what, ": ", bytes, " bytes requested during a capture");
  ++state_->allocations;
}

std::unique_ptr<Buffer> HostDevice::allocate(std::int64_t bytes, std::string_view what) {
  count_allocation(bytes, what);
  if (!state_->options.trace_only) return std::make_unique<HostBuffer>(bytes, what);
  return std::make_unique<FakeBuffer>(take_fake(state_->next_fake_address, bytes), bytes);
}

std::unique_ptr<Buffer> HostDevice::allocate_pinned(std::int64_t bytes, std::string_view what) {
  count_allocation(bytes, what);
  return std::make_unique<HostBuffer>(bytes, what);
}

std::unique_ptr<Stream> HostDevice::make_stream(StreamPriority priority) {
  return make_host_stream(state_, priority);
}

std::unique_ptr<Event> HostDevice::make_event() { return make_host_event(); }

}  // namespace muo
