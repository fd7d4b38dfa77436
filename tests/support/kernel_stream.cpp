#include "support/kernel_stream.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>

#include "base/check.h"
#include "runtime/plugin.h"
#include "support/environment.h"

namespace muo::test {
namespace {

constexpr std::align_val_t kAlignment256{256};

const BackendPlugin& plugin() {
  static const BackendPlugin& plugin = []() -> const BackendPlugin& {
    const bool simt = kernel_backend() == KernelBackend::kSimt;
    // Makes launches synchronous, because tests read memory after a call returns. CUDA reads the
    // variable when it is initialised, at the plug-in's first query of devices.
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);  // NOLINT(concurrency-mt-unsafe): no other thread
    const LoadedPlugin loaded = simt ? load_simt() : load_cuda();
    if (loaded.plugin == nullptr)
      throw Error(concat("MUO_TEST_BACKEND=", simt ? "simt" : "cuda", ": ", loaded.missing));
    return *loaded.plugin;
  }();
  return plugin;
}

// The device of the tests in this process. It is never destroyed, because static tensors may
// outlive it.
Device& device() {
  static Device& device = *plugin().make_device(0, 0).release();
  return device;
}

}  // namespace

KernelBackend kernel_backend() {
  static const KernelBackend backend = [] {
    const char* name = std::getenv("MUO_TEST_BACKEND");  // NOLINT(concurrency-mt-unsafe)
    const std::string value = name == nullptr ? "host" : name;
    MUO_CHECK(value == "host" || value == "simt" || value == "cuda", "MUO_TEST_BACKEND is '", value,
              "', expected host, simt or cuda");
    return value == "host"   ? KernelBackend::kHost
           : value == "simt" ? KernelBackend::kSimt
                             : KernelBackend::kCuda;
  }();
  return backend;
}

GroupOptions tested_group(int world) {
  if (kernel_backend() == KernelBackend::kHost) return {.world = world};
  return {.world = world,
          .plugin = &plugin(),
          .ranks_per_device = world,
          .communicator = CommunicatorKind::kPeer,
          .watch = patient_watch()};
}

SharedMemory::SharedMemory(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  if (kernel_backend() != KernelBackend::kHost) {
    Buffer* buffer = plugin().allocate_managed(0, bytes).release();
    memory_ = {buffer->data(), [buffer](std::byte*) { delete buffer; }};
  } else {
    memory_ = {static_cast<std::byte*>(::operator new(size, kAlignment256)),
               [](std::byte* p) { ::operator delete(p, kAlignment256); }};
  }
  std::fill_n(memory_.get(), size, std::byte{0});
}

KernelStream::KernelStream() {
  if (kernel_backend() != KernelBackend::kHost)
    stream_ = device().make_stream(StreamPriority::kNormal);
}

void KernelStream::synchronize() {
  if (stream_) stream_->synchronize();
}
void KernelStream::launch(Graph& graph) {
  MUO_CHECK(stream_, "kernel tests on the host have no graphs");
  stream_->launch(graph);
  stream_->synchronize();
}
std::unique_ptr<Graph> KernelStream::capture(const std::function<void()>& body) {
  MUO_CHECK(stream_, "kernel tests on the host have no graphs");
  return stream_->capture(body);
}
void KernelStream::loop(const LoopCounter& counter, std::int64_t count,
                        const std::function<void()>& body) {
  MUO_CHECK(stream_, "kernel tests on the host have no loops");
  stream_->loop(counter, count, body);
}
void KernelStream::copy(Tensor dst, Tensor src) {
  MUO_CHECK(dst.numel() == src.numel() && dst.dtype == src.dtype);
  std::copy_n(src.data, src.bytes(), dst.data);
}
void KernelStream::zero(Tensor dst) { std::fill_n(dst.data, dst.bytes(), std::byte{0}); }
void KernelStream::enqueue_host(std::string_view name, std::span<const Access> /*accesses*/,
                                HostTask task) {
  MUO_CHECK(!stream_, "'", name, "' is a host task");
  task();
}
NativeStream KernelStream::native() const { return stream_ ? stream_->native() : nullptr; }
bool KernelStream::is_host() const { return !stream_; }

}  // namespace muo::test
