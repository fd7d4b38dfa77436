#include "runtime/deferred_free.h"

#include <mutex>
#include <utility>
#include <vector>

namespace muo {
namespace {

struct Kept {
  std::mutex mutex;
  std::vector<std::unique_ptr<Buffer>> buffers;
};

class KeptBuffer final : public Buffer {
 public:
  // `kept` has capacity for one more buffer, so that the destructor does not allocate.
  KeptBuffer(std::unique_ptr<Buffer> buffer, std::shared_ptr<Kept> kept)
      : buffer_(std::move(buffer)), kept_(std::move(kept)) {}
  ~KeptBuffer() override {
    const std::lock_guard lock(kept_->mutex);
    kept_->buffers.push_back(std::move(buffer_));
  }
  KeptBuffer(const KeptBuffer&) = delete;
  KeptBuffer& operator=(const KeptBuffer&) = delete;
  [[nodiscard]] std::byte* data() const override { return buffer_->data(); }
  [[nodiscard]] std::int64_t bytes() const override { return buffer_->bytes(); }

 private:
  std::unique_ptr<Buffer> buffer_;
  std::shared_ptr<Kept> kept_;
};

class DeferredFreeDevice final : public Device {
 public:
  explicit DeferredFreeDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  [[nodiscard]] int rank() const override { return device_->rank(); }
  void bind_thread() override { device_->bind_thread(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::int64_t bytes,
                                                 std::string_view what) override {
    return keep(device_->allocate(bytes, what));
  }
  [[nodiscard]] std::unique_ptr<Buffer> allocate_pinned(std::int64_t bytes,
                                                        std::string_view what) override {
    return keep(device_->allocate_pinned(bytes, what));
  }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return device_->make_stream(priority);
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return device_->make_event(); }
  void seal() override { device_->seal(); }
  [[nodiscard]] std::int64_t allocations() const override { return device_->allocations(); }

 private:
  std::unique_ptr<Buffer> keep(std::unique_ptr<Buffer> buffer) {
    {
      const std::lock_guard lock(kept_->mutex);
      kept_->buffers.reserve(static_cast<std::size_t>(++made_));
    }
    return std::make_unique<KeptBuffer>(std::move(buffer), kept_);
  }

  std::unique_ptr<Device> device_;
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();  // freed first
  std::int64_t made_ = 0;
};

}  // namespace

std::unique_ptr<Device> keep_memory(std::unique_ptr<Device> device) {
  return std::make_unique<DeferredFreeDevice>(std::move(device));
}

}  // namespace muo
