#include "runtime/deferred_free.h"

#include <gtest/gtest.h>

#include "runtime/host/host_device.h"

namespace muo {
namespace {

// A device that counts its freed buffers.
struct Counts {
  int freed = 0;
};
class CountedBuffer final : public Buffer {
 public:
  CountedBuffer(std::unique_ptr<Buffer> buffer, Counts& counts)
      : buffer_(std::move(buffer)), counts_(counts) {}
  ~CountedBuffer() override { ++counts_.freed; }
  CountedBuffer(const CountedBuffer&) = delete;
  CountedBuffer& operator=(const CountedBuffer&) = delete;
  [[nodiscard]] std::byte* data() const override { return buffer_->data(); }
  [[nodiscard]] std::int64_t bytes() const override { return buffer_->bytes(); }

 private:
  std::unique_ptr<Buffer> buffer_;
  Counts& counts_;
};
class CountedDevice final : public Device {
 public:
  explicit CountedDevice(Counts& counts) : counts_(counts) {}
  [[nodiscard]] int rank() const override { return host_.rank(); }
  void bind_thread() override {}
  std::unique_ptr<Buffer> allocate(std::int64_t bytes, std::string_view what) override {
    return std::make_unique<CountedBuffer>(host_.allocate(bytes, what), counts_);
  }
  std::unique_ptr<Buffer> allocate_pinned(std::int64_t bytes, std::string_view what) override {
    return std::make_unique<CountedBuffer>(host_.allocate_pinned(bytes, what), counts_);
  }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return host_.make_stream(priority);
  }
  std::unique_ptr<Event> make_event() override { return host_.make_event(); }
  void seal() override { host_.seal(); }
  [[nodiscard]] std::int64_t allocations() const override { return host_.allocations(); }

 private:
  HostDevice host_{3};
  Counts& counts_;
};

TEST(KeepMemory, FreesWithTheDevice) {
  Counts counts;
  auto device = keep_memory(std::make_unique<CountedDevice>(counts));
  std::unique_ptr<Buffer> first = device->allocate(100, "a tensor");
  std::unique_ptr<Buffer> second = device->allocate_pinned(7, "a batch");
  EXPECT_EQ(device->rank(), 3);
  EXPECT_EQ(device->allocations(), 2);
  EXPECT_EQ(first->bytes(), 100);
  const std::byte* place = second->data();
  first.reset();
  second.reset();
  EXPECT_EQ(counts.freed, 0);
  EXPECT_EQ(*place, std::byte{0});  // still allocated
  device.reset();
  EXPECT_EQ(counts.freed, 2);
}

TEST(KeepMemory, ABufferMayOutliveTheDevice) {
  Counts counts;
  auto device = keep_memory(std::make_unique<CountedDevice>(counts));
  std::unique_ptr<Buffer> late = device->allocate(1, "a tensor");
  device.reset();
  EXPECT_EQ(counts.freed, 0);
  late.reset();
  EXPECT_EQ(counts.freed, 1);
}

}  // namespace
}  // namespace muo
