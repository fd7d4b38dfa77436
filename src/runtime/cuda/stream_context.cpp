#include "runtime/cuda/stream_context.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace muo::cuda {
namespace {

// Threads of several devices look theirs up at once; each context is used by its stream's only.
struct Registry {
  std::mutex mutex;
  std::map<NativeStream, StreamContext> contexts;  // references stay valid as others come and go
  std::map<int, int> kept;                         // for collectives, by device
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
  MUO_CHECK(found != all.contexts.end(), "a stream without context: ", stream);
  return found->second;
}

void keep_for_collectives(int device, int multiprocessors) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  int& kept = all.kept[device];
  kept = std::max(kept, multiprocessors);
}

int kept_for_collectives(int device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.kept.find(device);
  return found == all.kept.end() ? 0 : found->second;
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
