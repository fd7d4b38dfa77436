#include "runtime/cuda/stream_context.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace muo::cuda {
namespace {

// Threads of several devices look up their contexts concurrently; a context is used by its stream's
// thread only.
struct Registry {
  std::mutex mutex;
  std::map<NativeStream, StreamContext> contexts;  // a map, so that references stay valid
  std::map<int, int> reserved;                     // for collectives, by device
};
Registry& registry() {
  static Registry registry;
  return registry;
}

}  // namespace

StreamContext& context_of(NativeStream stream) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.contexts.find(stream);
  MUO_CHECK(found != all.contexts.end(), "no context for stream ", stream);
  return found->second;
}

void reserve_for_collectives(int device, int multiprocessors) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  int& reserved = all.reserved[device];
  reserved = std::max(reserved, multiprocessors);
}

int reserved_for_collectives(int device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.reserved.find(device);
  return found == all.reserved.end() ? 0 : found->second;
}

void add_stream_context(NativeStream stream, StreamContext context) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  MUO_CHECK(all.contexts.emplace(stream, std::move(context)).second, "stream ", stream,
            " has a context already");
}

void remove_stream_context(NativeStream stream) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.contexts.erase(stream);
}

}  // namespace muo::cuda
