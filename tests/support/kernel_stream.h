#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/device.h"
#include "runtime/device_group.h"
#include "runtime/stream.h"

namespace muo::test {

// The backend of kernel tests. MUO_TEST_BACKEND is host (the default), simt (the CUDA kernels,
// executed on the CPU by tests/emulator) or cuda (on the first GPU).
enum class KernelBackend : std::uint8_t { kHost, kSimt, kCuda };
KernelBackend kernel_backend();
// Options for `world` ranks on that backend, all on the first GPU.
GroupOptions tested_group(int world);

// Memory that the tested kernels and the host access at the same address, initially zero. On a GPU
// it is managed memory, because TMA and 64-bit atomics do not support pinned memory; elsewhere it
// is exactly sized, so that AddressSanitizer detects accesses past the end.
class SharedMemory {
 public:
  SharedMemory() = default;
  explicit SharedMemory(std::int64_t bytes);
  [[nodiscard]] std::byte* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> memory_;
};

// Every operation is complete when its call returns, on any backend.
class KernelStream final : public Stream {
 public:
  KernelStream();

  void record(Event& /*event*/) override {}
  void wait(Event& /*event*/) override {}
  void synchronize() override;
  void launch(Graph& graph) override;
  std::unique_ptr<Graph> capture(const std::function<void()>& body) override;
  void loop(const LoopCounter& counter, std::int64_t count,
            const std::function<void()>& body) override;
  void copy(Tensor dst, Tensor src) override;
  void zero(Tensor dst) override;
  void enqueue_host(std::string_view name, std::span<const Access> accesses,
                    HostTask task) override;
  [[nodiscard]] NativeStream native() const override;
  [[nodiscard]] bool is_host() const override;

 private:
  std::unique_ptr<Stream> stream_;  // null on the host
};

}  // namespace muo::test
