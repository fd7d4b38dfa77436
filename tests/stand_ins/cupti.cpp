// CUPTI's callbacks and activity records for graphs of the CUDA stand-in. Records come in any
// order, several buffers at a time. CUPTI_STAND_IN=taken: another profiler uses it;
// CUPTI_STAND_IN=drops: every hundredth record is dropped; CUPTI_STAND_IN=silent: no callback for
// clones, whose ids then are those of the captured nodes within the executable graph.
#include "runtime/cuda/cupti.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stand_ins/world.h"

namespace muo::stand_in {
namespace {

using cupti::Activity;

constexpr cupti::Result kInvalidParameter = 1, kNoMoreRecords = 12;
constexpr std::size_t kDelivered = 256;  // records that are delivered at once
constexpr double kClockOffset = 1.7e9;   // seconds by which CUPTI's clock is ahead

std::string_view setting() {
  const char* text = std::getenv("CUPTI_STAND_IN");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "" : text;
}

std::uint64_t nanoseconds(double seconds) {
  return static_cast<std::uint64_t>((seconds + kClockOffset) * 1e9);
}

// Bytes of a record in a buffer: more than those that are read.
std::size_t size_of(Activity kind) { return kind == Activity::kKernel ? 208 : 128; }

struct Execution {
  Activity kind = Activity::kKernel;
  const char* name = nullptr;
  std::uint64_t node = 0, start = 0, end = 0;
  std::uint32_t correlation = 0;
};

class Cupti final : public Profiler {
 public:
  static Cupti& get() {
    static Cupti& one = *new Cupti;
    return one;
  }

  void node_created(std::uint64_t id) override { node(cupti::kNodeCreated, id, 0); }
  std::uint64_t node_cloned(std::uint32_t executable, std::uint64_t original) override {
    if (setting() == "silent") return std::uint64_t{executable} << 32U | original;
    const std::uint64_t id = ++cloned << 40U;
    node(cupti::kNodeCloned, id, original);
    return id;
  }
  void launches(std::uint32_t correlation) override {
    if (!is_on(cupti::Domain::kRuntimeApi, cupti::kGraphLaunch)) return;
    for (const int site : {cupti::kApiEnter, 1}) {
      cupti::CallbackData data{};
      data.site = site;
      data.correlation = correlation;
      callback(user_data, cupti::Domain::kRuntimeApi, cupti::kGraphLaunch, &data);
    }
  }
  void ran(const std::string& name, std::uint64_t node, std::uint32_t correlation, double begin,
           double end) override {
    bool is_full = false;
    {
      const std::lock_guard lock(mutex);
      const Activity kind = name == "a copy"  ? Activity::kCopy
                            : name == "zeros" ? Activity::kFill
                                              : Activity::kKernel;
      if (!enabled.contains(kind)) return;
      if (setting() == "drops" && ++recorded % 100 == 0) {
        ++dropped;
        return;
      }
      executions.push_back({kind, names.insert(name).first->c_str(), node, nanoseconds(begin),
                            nanoseconds(end), correlation});
      is_full = executions.size() >= kDelivered;
    }
    if (is_full) deliver();
  }

  // Delivers the records so far in several buffers. Returns when all of them, those of concurrent
  // calls too, are delivered.
  void deliver() {
    const std::lock_guard one_by_one(delivering);
    std::vector<Execution> all;
    {
      const std::lock_guard lock(mutex);
      all.swap(executions);
      std::ranges::shuffle(all, random);
    }
    for (std::size_t begin = 0; begin < all.size(); begin += kDelivered / 4)
      deliver({all.data() + begin, std::min(kDelivered / 4, all.size() - begin)});
  }

  [[nodiscard]] bool is_on(cupti::Domain domain, std::uint32_t id) {
    const std::lock_guard lock(mutex);
    return callbacks.contains({domain, id});
  }

  std::mutex delivering;  // locked before `mutex`
  std::mutex mutex;
  cupti::Callback callback = nullptr;
  void* user_data = nullptr;
  std::set<std::pair<cupti::Domain, std::uint32_t>> callbacks;
  cupti::RequestBuffer request = nullptr;
  cupti::CompleteBuffer complete = nullptr;
  std::set<Activity> enabled;
  std::vector<Execution> executions;
  std::size_t dropped = 0, recorded = 0;
  std::atomic<std::uint64_t> cloned = 0;
  std::set<std::string> names;
  std::mt19937 random;

 private:
  void node(std::uint32_t id, std::uint64_t node, std::uint64_t original) {
    if (!is_on(cupti::Domain::kResource, id)) return;
    cupti::GraphData graph{};
    graph.node = reinterpret_cast<CUgraphNode_st*>(node);
    graph.original_node = reinterpret_cast<CUgraphNode_st*>(original);
    cupti::ResourceData data{};
    data.descriptor = &graph;
    callback(user_data, cupti::Domain::kResource, id, &data);
  }

  void deliver(std::span<const Execution> some) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, max_records = 0, used = 0;
    request(&buffer, &size, &max_records);
    std::memset(buffer, 0xff, size);
    for (const Execution& one : some) {
      const auto fill = [&](auto record) {
        record.kind = one.kind;
        record.start = one.start;
        record.end = one.end;
        record.correlation = one.correlation;
        record.graph_node = one.node;
        if constexpr (requires { record.name; }) record.name = one.name;
        std::memcpy(buffer + used, &record, sizeof record);
        used += size_of(record.kind);
      };
      one.kind == Activity::kKernel ? fill(cupti::KernelRecord{}) : fill(cupti::TransferRecord{});
    }
    complete(nullptr, 0, buffer, size, used);
  }
};

}  // namespace
}  // namespace muo::stand_in

using namespace muo::stand_in;  // NOLINT(google-build-using-namespace): CUPTI's functions are these
namespace cupti = muo::cupti;

extern "C" {

cupti::Result cuptiSubscribe(cupti::Subscriber* subscriber, cupti::Callback callback, void* data) {
  Cupti& own = Cupti::get();
  if (setting() == "taken" || own.callback != nullptr) return cupti::kMultipleSubscribers;
  own.callback = callback;
  own.user_data = data;
  *subscriber = reinterpret_cast<cupti::Subscriber>(&own);
  world().profiler = &own;
  return cupti::kSuccess;
}

cupti::Result cuptiEnableCallback(std::uint32_t enable, cupti::Subscriber subscriber,
                                  cupti::Domain domain, std::uint32_t id) {
  Cupti& own = Cupti::get();
  if (subscriber != reinterpret_cast<cupti::Subscriber>(&own)) return kInvalidParameter;
  const std::lock_guard lock(own.mutex);
  if (enable != 0)
    own.callbacks.emplace(domain, id);
  else
    own.callbacks.erase({domain, id});
  return cupti::kSuccess;
}

cupti::Result cuptiActivityRegisterCallbacks(cupti::RequestBuffer request,
                                             cupti::CompleteBuffer complete) {
  Cupti::get().request = request;
  Cupti::get().complete = complete;
  return cupti::kSuccess;
}

cupti::Result cuptiActivityEnable(cupti::Activity kind) {
  Cupti& own = Cupti::get();
  const std::lock_guard lock(own.mutex);
  if (own.complete == nullptr) return kInvalidParameter;
  own.enabled.insert(kind);
  return cupti::kSuccess;
}
cupti::Result cuptiActivityDisable(cupti::Activity kind) {
  Cupti& own = Cupti::get();
  const std::lock_guard lock(own.mutex);
  own.enabled.erase(kind);
  return cupti::kSuccess;
}

cupti::Result cuptiActivityFlushAll(std::uint32_t /*flags*/) {
  Cupti::get().deliver();
  return cupti::kSuccess;
}

cupti::Result cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid,
                                         cupti::Record** record) {
  auto* next = buffer;
  if (*record != nullptr)
    next = reinterpret_cast<std::uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= buffer + valid) return kNoMoreRecords;
  *record = reinterpret_cast<cupti::Record*>(next);
  return cupti::kSuccess;
}

cupti::Result cuptiActivityGetNumDroppedRecords(CUctx_st* /*context*/, std::uint32_t /*stream*/,
                                                std::size_t* count) {
  Cupti& own = Cupti::get();
  const std::lock_guard lock(own.mutex);
  *count = std::exchange(own.dropped, 0);
  return cupti::kSuccess;
}

cupti::Result cuptiGetTimestamp(std::uint64_t* time) {
  *time = nanoseconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  return cupti::kSuccess;
}

cupti::Result cuptiGetGraphNodeId(CUgraphNode_st* node, std::uint64_t* id) {
  *id = reinterpret_cast<std::uint64_t>(node);
  return cupti::kSuccess;
}

cupti::Result cuptiGetGraphExecId(CUgraphExec_st* executable, std::uint32_t* id) {
  const Lock lock;
  *id = executable->number;
  return cupti::kSuccess;
}

cupti::Result cuptiGetResultString(cupti::Result result, const char** text) {
  *text = result == kInvalidParameter ? "CUPTI_ERROR_INVALID_PARAMETER" : "CUPTI_SUCCESS";
  return cupti::kSuccess;
}

}  // extern "C"
