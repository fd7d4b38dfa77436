#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "stand_ins/world.h"

namespace muo::stand_in {

const Allocation* find(const void* address) {
  World& all = world();
  const auto* byte = static_cast<const std::byte*>(address);
  const auto next = all.memory.upper_bound(byte);
  if (next == all.memory.begin()) return nullptr;
  const Allocation& before = std::prev(next)->second;
  return byte <= before.data + before.bytes ? &before : nullptr;
}

namespace {

constexpr std::align_val_t kAlignment{256};

cudaError_t allocate(Lock& lock, const char* call, void** out, std::size_t bytes, int gpu) {
  World& all = world();
  Gpu& own = current_gpu();
  if (out == nullptr)
    return wrong(cudaErrorInvalidValue, std::string(call) + " with a null result");
  if (const cudaError_t error = usable(own); error != cudaSuccess) return error;
  if (const cudaError_t error = unsafe(call); error != cudaSuccess) return error;
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  wait_for_all(lock, own, call);
  if (gpu >= 0 && bytes > all.settings.memory - own.allocated)
    return failed(cudaErrorMemoryAllocation);
  void* data = ::operator new(bytes, kAlignment, std::nothrow);
  if (data == nullptr) return failed(cudaErrorMemoryAllocation);
  // Fills the memory with NaNs, at least at its end; the rest is uninitialised.
  const std::size_t filled = std::min(bytes, all.settings.nan ? std::size_t{8} << 20U : 4096);
  std::memset(static_cast<std::byte*>(data) + bytes - filled, 0xFF, filled);
  const Allocation made{static_cast<std::byte*>(data), bytes, gpu, ++all.numbers};
  all.memory.emplace(made.data, made);
  all.alive.insert(made.number);
  if (gpu >= 0) own.allocated += bytes;
  *out = data;
  return cudaSuccess;
}

// cudaFree may wait for the whole GPU, so this one always does.
cudaError_t release(const char* call, void* data, bool pinned) {
  Lock lock;
  World& all = world();
  if (data == nullptr) return cudaSuccess;
  const auto found = all.memory.find(static_cast<std::byte*>(data));
  if (found == all.memory.end() || (found->second.gpu == kPinned) != pinned)
    return wrong(cudaErrorInvalidValue,
                 std::string(call) + " of memory that its counterpart did not allocate");
  const Allocation freed = found->second;
  Gpu& gpu = freed.gpu < 0 ? current_gpu() : *all.gpus[static_cast<std::size_t>(freed.gpu)];
  if (const cudaError_t error = unsafe(call); error != cudaSuccess) return error;
  if (all.in_use.contains(freed.number))
    misuse(std::string(call) + " of " + std::to_string(freed.bytes) +
           " bytes that pending work may use");
  if (gpu.error == cudaSuccess) wait_for_all(lock, gpu, call);
  all.memory.erase(freed.data);
  all.alive.erase(freed.number);
  if (freed.gpu >= 0) gpu.allocated -= freed.bytes;
  if (all.in_use.contains(freed.number)) return cudaSuccess;  // leaked, as work still writes to it
  ::operator delete(freed.data, kAlignment);
  return usable(gpu);
}

// True if the range is within `allocation`, or is the host's, i.e. `allocation` is null.
bool within(const Allocation* allocation, const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  return allocation == nullptr || first + bytes <= allocation->data + allocation->bytes;
}

bool fits(cudaMemcpyKind kind, bool from_gpu, bool to_gpu) {
  return kind == cudaMemcpyDefault ||
         kind == (from_gpu ? (to_gpu ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                           : (to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost));
}

}  // namespace
}  // namespace muo::stand_in

using namespace muo::stand_in;  // NOLINT(google-build-using-namespace): CUDA's functions are these

cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  const Lock lock;
  *total = world().settings.memory;
  *available = *total - current_gpu().allocated;
  return usable(current_gpu());
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  Lock lock;
  return allocate(lock, "cudaMalloc", data, bytes, current_gpu().index);
}
cudaError_t cudaFree(void* data) { return release("cudaFree", data, false); }
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) {
  Lock lock;
  return allocate(lock, "cudaHostAlloc", data, bytes, kPinned);
}
cudaError_t cudaMallocManaged(void** data, std::size_t bytes, unsigned /*flags*/) {
  Lock lock;
  return allocate(lock, "cudaMallocManaged", data, bytes, kManaged);
}
cudaError_t cudaMemAdvise(const void* data, std::size_t bytes, cudaMemoryAdvise /*advice*/,
                          cudaMemLocation location) {
  const Lock lock;
  const Allocation* memory = find(data);
  if (memory == nullptr || memory->gpu != kManaged || !within(memory, data, bytes) ||
      location.type != cudaMemLocationTypeDevice || location.id >= world().settings.gpus)
    return wrong(cudaErrorInvalidValue, "advice on memory that is not managed, or on no GPU");
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) { return release("cudaFreeHost", data, true); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Lock lock;
  const Allocation* source = find(from);
  const Allocation* target = find(to);
  if (!within(source, from, bytes) || !within(target, to, bytes))
    return wrong(cudaErrorInvalidValue,
                 "a copy of " + std::to_string(bytes) + " bytes beyond the end of an allocation");
  if (!fits(kind, source != nullptr && source->gpu >= 0, target != nullptr && target->gpu >= 0))
    return wrong(cudaErrorInvalidMemcpyDirection,
                 "a copy whose direction does not match its memory");
  if (world().streams.contains(stream) && captures_loop(stream) &&
      (source == nullptr || target == nullptr))
    return wrong(cudaErrorInvalidValue, "a copy of pageable memory in a loop");
  const auto copy = [=] { std::memcpy(to, from, bytes); };
  // Copies later, also from pageable memory, which CUDA would read before the call returns.
  return enqueue(lock, stream, "a copy", {.certain = {}, .possible = {from, to}}, copy);
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  Lock lock;
  const Allocation* target = find(data);
  if (target == nullptr || !within(target, data, bytes))
    return wrong(cudaErrorInvalidValue,
                 "setting " + std::to_string(bytes) + " bytes that are not in one allocation");
  return enqueue(lock, stream, "zeros", {.certain = {data}, .possible = {}},
                 [=] { std::memset(data, value, bytes); });
}
