#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/check.h"
#include "runtime/stream.h"

namespace muo::test {

// Runs every operation at once, on the calling thread: what a kernel test needs of a stream.
class ImmediateStream final : public Stream {
 public:
  void record(Event& /*event*/) override {}
  void wait(Event& /*event*/) override {}
  void synchronize() override {}
  void launch(Graph& /*graph*/) override { MUO_FAIL("an immediate stream has no graphs"); }
  std::unique_ptr<Graph> capture(const std::function<void()>& /*body*/) override {
    MUO_FAIL("an immediate stream has no graphs");
  }
  void copy(Tensor dst, Tensor src) override {
    MUO_CHECK(dst.numel() == src.numel() && dst.dtype == src.dtype);
    std::copy_n(src.data, src.bytes(), dst.data);
  }
  void zero(Tensor dst) override { std::fill_n(dst.data, dst.bytes(), std::byte{0}); }
  void enqueue_host(std::string_view /*name*/, std::span<const Access> /*accesses*/,
                    HostTask task) override {
    task();
  }
  [[nodiscard]] NativeStream native() const override { return nullptr; }
  [[nodiscard]] bool is_host() const override { return true; }
};

}  // namespace muo::test
