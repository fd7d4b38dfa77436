// A libnccl for the tier of tests: NCCL's C interface, on the memory and the streams of the tier.
// A call enqueues work on the stream's host stream; there the ranks meet and move the values, in
// the order of NCCL's ring. As NCCL's kernels do, the work ends in silence once its communicator is
// aborted; as NCCL does, destroying a communicator waits for the graphs that hold its work.

#include "support/nccl_stand_in.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "runtime/cuda/nccl_library.h"
#include "simt/emulator/launch.h"

namespace muo::nccl {
namespace {

std::int64_t size_of_type(Type type) {
  switch (type) {
    case Type::kUint8:
      return 1;
    case Type::kBfloat16:
      return 2;
    case Type::kInt32:
    case Type::kFloat32:
      return 4;
    case Type::kInt64:
    case Type::kFloat64:
      return 8;
  }
  return 0;
}

enum class Call : std::uint8_t {
  kReduce,
  kBroadcast,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kSend,
  kReceive
};

struct Work {
  Call call = Call::kAllReduce;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t count = 0;  // as NCCL's parameter
  Type type = Type::kFloat32;
  int peer = -1;  // or root
};

// Where the ranks of one unique id meet.
class World {
 public:
  explicit World(int size) : posts(static_cast<std::size_t>(size)) {}

  // False once aborted.
  bool arrive() {
    std::unique_lock lock(mutex);
    if (aborted) return false;
    const std::uint64_t mine = generation;
    if (++arrived == size()) {
      arrived = 0;
      ++generation;
      changed.notify_all();
      return true;
    }
    changed.wait(lock, [&] { return generation != mine || aborted; });
    return generation != mine;
  }
  void abort() {
    const std::lock_guard lock(mutex);
    aborted = true;
    changed.notify_all();
  }
  [[nodiscard]] int size() const { return static_cast<int>(posts.size()); }

  struct Message {
    const std::byte* data;
    std::int64_t bytes;
    bool taken = false;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Work> posts;  // by rank, between two arrivals
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;  // (from, to)
  std::atomic<bool> mispaired = false;
  bool aborted = false;

 private:
  int arrived = 0;
  std::uint64_t generation = 0;
};

struct Settings {
  std::mutex mutex;
  int version = 22809;
  std::map<std::string, Result> failures;
  std::string calls, told;
  std::string last_error;
  std::map<std::uint64_t, std::shared_ptr<World>> worlds;  // by unique id
  std::uint64_t ids = 0;
  std::atomic<int> alive = 0;
};
Settings& settings() {
  static Settings the_settings;
  return the_settings;
}

}  // namespace
}  // namespace muo::nccl

struct ncclComm {
  std::shared_ptr<muo::nccl::World> world;
  int rank = 0;
  std::string name;
  // Held by every piece of enqueued or captured work.
  std::shared_ptr<int> work = std::make_shared<int>(0);
};

namespace muo::nccl {
namespace {

template <class T>
void add(std::byte* out, const std::byte* in, std::int64_t n, bool first) {
  auto* to = reinterpret_cast<T*>(out);
  const auto* from = reinterpret_cast<const T*>(in);
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, BF16>)
      to[i] = first ? from[i] : to_bf16(to_f32(to[i]) + to_f32(from[i]));
    else
      to[i] = first ? from[i] : static_cast<T>(to[i] + from[i]);
  }
}
void add(Type type, std::byte* out, const std::byte* in, std::int64_t n, bool first) {
  switch (type) {
    case Type::kFloat32:
      return add<float>(out, in, n, first);
    case Type::kBfloat16:
      return add<BF16>(out, in, n, first);
    case Type::kFloat64:
      return add<double>(out, in, n, first);
    case Type::kInt32:
      return add<std::int32_t>(out, in, n, first);
    case Type::kInt64:
      return add<std::int64_t>(out, in, n, first);
    case Type::kUint8:
      return add<std::uint8_t>(out, in, n, first);
  }
}

// Segment `segment` of a sum goes round the ring and ends at its rank, which adds last.
void ring_sum(const World& world, const Work& mine, std::int64_t first, std::int64_t n, int segment,
              std::byte* out) {
  std::vector<std::byte> sum(static_cast<std::size_t>(n * size_of_type(mine.type)));
  for (int k = 1; k <= world.size(); ++k) {
    const Work& post = world.posts[static_cast<std::size_t>((segment + k) % world.size())];
    add(mine.type, sum.data(), post.in + first * size_of_type(mine.type), n, k == 1);
  }
  std::copy(sum.begin(), sum.end(), out);
}

void move(const World& world, int rank, const Work& mine, std::vector<std::byte>& result) {
  const std::int64_t size = size_of_type(mine.type);
  const auto bytes = [&](std::int64_t n) { return static_cast<std::size_t>(n * size); };
  switch (mine.call) {
    case Call::kReduceScatter:
      result.resize(bytes(mine.count));
      return ring_sum(world, mine, rank * mine.count, mine.count, rank, result.data());
    case Call::kReduce:
    case Call::kAllReduce:
      if (mine.call == Call::kReduce && rank != mine.peer) return;
      result.resize(bytes(mine.count));
      for (int s = 0; s < world.size(); ++s) {
        const std::int64_t first = mine.count * s / world.size();
        const std::int64_t last = mine.count * (s + 1) / world.size();
        ring_sum(world, mine, first, last - first, s, result.data() + first * size);
      }
      return;
    case Call::kBroadcast: {
      const std::byte* in = world.posts[static_cast<std::size_t>(mine.peer)].in;
      result.assign(in, in + mine.count * size);
      return;
    }
    case Call::kAllGather:
      for (const Work& post : world.posts)
        result.insert(result.end(), post.in, post.in + mine.count * size);
      return;
    case Call::kSend:
    case Call::kReceive:
      return;
  }
}

bool pairs_with(const Work& a, const Work& b) {
  return a.call == b.call && a.count == b.count && a.type == b.type && a.peer == b.peer;
}

// One collective of all ranks. Into memory of its own first: outputs may be inputs.
bool run_collective(World& world, int rank, const Work& mine) {
  world.posts[static_cast<std::size_t>(rank)] = mine;
  if (!world.arrive()) return false;
  for (const Work& post : world.posts)
    if (!pairs_with(mine, post)) world.mispaired = true;
  if (!world.arrive() || world.mispaired) return false;  // all have looked
  std::vector<std::byte> result;
  move(world, rank, mine, result);
  if (!world.arrive()) return false;  // all have read
  std::copy(result.begin(), result.end(), mine.out);
  return true;
}

bool receive(World& world, int rank, const Work& mine) {
  std::unique_lock lock(world.mutex);
  auto& queue = world.messages[{mine.peer, rank}];
  world.changed.wait(lock, [&] { return !queue.empty() || world.aborted; });
  if (queue.empty()) return false;
  const std::shared_ptr<World::Message> message = queue.front();
  queue.pop_front();
  const bool fits = message->bytes == mine.count * size_of_type(mine.type);
  if (fits) std::copy_n(message->data, message->bytes, mine.out);
  world.mispaired = world.mispaired || !fits;
  message->taken = true;
  world.changed.notify_all();
  return true;
}

// What NCCL makes one kernel of.
void run(World& world, int rank, const std::vector<Work>& group) {
  std::vector<std::shared_ptr<World::Message>> sent;
  for (const Work& work : group) {
    if (work.call != Call::kSend) continue;
    sent.push_back(std::make_shared<World::Message>(
        World::Message{work.in, work.count * size_of_type(work.type)}));
    const std::lock_guard lock(world.mutex);
    world.messages[{rank, work.peer}].push_back(sent.back());
    world.changed.notify_all();
  }
  for (const Work& work : group) {
    if (work.call == Call::kSend) continue;
    const bool done = work.call == Call::kReceive ? receive(world, rank, work)
                                                  : run_collective(world, rank, work);
    if (!done) return;
  }
  std::unique_lock lock(world.mutex);
  world.changed.wait(lock, [&] {
    return world.aborted || std::all_of(sent.begin(), sent.end(), [](auto& m) { return m->taken; });
  });
}

struct OpenGroup {
  int depth = 0;
  Comm comm = nullptr;
  NativeStream stream = nullptr;
  std::vector<Work> work;
};
thread_local OpenGroup open_group;

// Whether `function` was told to fail.
Result outcome(const char* function) {
  Settings& s = settings();
  const std::lock_guard lock(s.mutex);
  const auto failure = s.failures.find(function);
  if (failure == s.failures.end()) return Result::kSuccess;
  const Result result = failure->second;
  s.failures.erase(failure);
  s.last_error = "told to";
  return result;
}

Result submit(Comm comm, NativeStream stream, std::vector<Work> work) {
  std::vector<Access> accesses;
  for (const Work& w : work) {
    const std::int64_t size = size_of_type(w.type) * w.count;
    const std::int64_t world = comm->world->size();
    const bool reads = w.in != nullptr && (w.call != Call::kBroadcast || w.peer == comm->rank);
    if (reads)
      accesses.push_back({w.in, w.call == Call::kReduceScatter ? size * world : size, false});
    if (w.out != nullptr && (w.call != Call::kReduce || w.peer == comm->rank))
      accesses.push_back({w.out, w.call == Call::kAllGather ? size * world : size, true});
  }
  stream->host.enqueue_host("a kernel of NCCL", accesses,
                            [world = comm->world, rank = comm->rank, alive = comm->work,
                             work = std::move(work)] { run(*world, rank, work); });
  return Result::kSuccess;
}

Result call(const char* function, Comm comm, NativeStream stream, const Work& work) {
  {
    const std::lock_guard lock(settings().mutex);
    settings().calls +=
        std::string(function) + " " + comm->name + " " + std::to_string(work.count) + "\n";
  }
  if (const Result result = outcome(function); result != Result::kSuccess) return result;
  if (open_group.depth == 0) return submit(comm, stream, {work});
  open_group.comm = comm;
  open_group.stream = stream;
  open_group.work.push_back(work);
  return Result::kSuccess;
}

const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }
std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }
std::int64_t number(std::size_t n) { return static_cast<std::int64_t>(n); }

}  // namespace
}  // namespace muo::nccl

// NOLINTBEGIN(readability-identifier-naming): NCCL's names.
using muo::NativeStream;
using muo::nccl::Call;
using muo::nccl::Comm;
using muo::nccl::Config;
using muo::nccl::Op;
using muo::nccl::Result;
using muo::nccl::settings;
using muo::nccl::Type;
using muo::nccl::UniqueId;
using muo::nccl::World;

extern "C" {

Result ncclGetVersion(int* version) {
  *version = settings().version;
  return Result::kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  if (const Result result = muo::nccl::outcome("ncclGetUniqueId"); result != Result::kSuccess)
    return result;
  const std::lock_guard lock(settings().mutex);
  const std::uint64_t number = ++settings().ids;
  std::memcpy(id->bytes, &number, sizeof number);
  return Result::kSuccess;
}

Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xCAFEBEEF || config->size != sizeof(Config) || config->blocking != 1 ||
      config->max_ctas < 8 || config->max_ctas > 16)
    return Result::kInvalidArgument;
  for (const auto& [name, value] : {std::pair{"NCCL_ALGO", "Ring"},
                                    {"NCCL_PROTO", "Simple"},
                                    {"NCCL_NVLS_ENABLE", "0"},
                                    {"NCCL_GRAPH_MIXING_SUPPORT", "0"}}) {
    const char* set = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    if (set == nullptr || std::string(set) != value) return Result::kInvalidUsage;
  }
  if (const Result result = muo::nccl::outcome("ncclCommInitRankConfig");
      result != Result::kSuccess)
    return result;
  std::uint64_t number = 0;
  std::memcpy(&number, id.bytes, sizeof number);
  std::shared_ptr<World> world;
  {
    const std::lock_guard lock(settings().mutex);
    std::shared_ptr<World>& known = settings().worlds[number];
    if (known == nullptr) known = std::make_shared<World>(size);
    world = known;
  }
  if (!world->arrive()) return Result::kRemoteError;
  ++settings().alive;
  *comm = new ncclComm{world, rank, config->comm_name};
  return Result::kSuccess;
}

Result ncclCommFinalize(Comm /*comm*/) { return Result::kSuccess; }

Result ncclCommDestroy(Comm comm) {
  while (comm->work.use_count() > 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  delete comm;
  --settings().alive;
  return Result::kSuccess;
}

Result ncclCommAbort(Comm comm) {
  comm->world->abort();
  delete comm;
  --settings().alive;
  return Result::kSuccess;
}

Result ncclCommGetAsyncError(Comm comm, Result* error) {
  *error = comm->world->mispaired ? Result::kInvalidUsage : muo::nccl::outcome("a collective");
  return Result::kSuccess;
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case Result::kUnhandledCudaError:
      return "unhandled cuda error";
    case Result::kInvalidUsage:
      return "invalid usage";
    case Result::kInvalidArgument:
      return "invalid argument";
    case Result::kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "another error";
  }
}

const char* ncclGetLastError(Comm /*comm*/) { return settings().last_error.c_str(); }

Result ncclReduce(const void* in, void* out, std::size_t count, Type type, Op /*op*/, int root,
                  Comm comm, NativeStream stream) {
  return muo::nccl::call("ncclReduce", comm, stream,
                         {Call::kReduce, muo::nccl::bytes(in), muo::nccl::bytes(out),
                          muo::nccl::number(count), type, root});
}
Result ncclBroadcast(const void* in, void* out, std::size_t count, Type type, int root, Comm comm,
                     NativeStream stream) {
  return muo::nccl::call("ncclBroadcast", comm, stream,
                         {Call::kBroadcast, muo::nccl::bytes(in), muo::nccl::bytes(out),
                          muo::nccl::number(count), type, root});
}
Result ncclAllReduce(const void* in, void* out, std::size_t count, Type type, Op /*op*/, Comm comm,
                     NativeStream stream) {
  return muo::nccl::call("ncclAllReduce", comm, stream,
                         {Call::kAllReduce, muo::nccl::bytes(in), muo::nccl::bytes(out),
                          muo::nccl::number(count), type});
}
Result ncclReduceScatter(const void* in, void* out, std::size_t count, Type type, Op /*op*/,
                         Comm comm, NativeStream stream) {
  return muo::nccl::call("ncclReduceScatter", comm, stream,
                         {Call::kReduceScatter, muo::nccl::bytes(in), muo::nccl::bytes(out),
                          muo::nccl::number(count), type});
}
Result ncclAllGather(const void* in, void* out, std::size_t count, Type type, Comm comm,
                     NativeStream stream) {
  return muo::nccl::call("ncclAllGather", comm, stream,
                         {Call::kAllGather, muo::nccl::bytes(in), muo::nccl::bytes(out),
                          muo::nccl::number(count), type});
}
Result ncclSend(const void* in, std::size_t count, Type type, int peer, Comm comm,
                NativeStream stream) {
  return muo::nccl::call(
      "ncclSend", comm, stream,
      {Call::kSend, muo::nccl::bytes(in), nullptr, muo::nccl::number(count), type, peer});
}
Result ncclRecv(void* out, std::size_t count, Type type, int peer, Comm comm, NativeStream stream) {
  return muo::nccl::call(
      "ncclRecv", comm, stream,
      {Call::kReceive, nullptr, muo::nccl::bytes(out), muo::nccl::number(count), type, peer});
}

Result ncclGroupStart() {
  ++muo::nccl::open_group.depth;
  return Result::kSuccess;
}
Result ncclGroupEnd() {
  muo::nccl::OpenGroup& group = muo::nccl::open_group;
  if (--group.depth > 0) return Result::kSuccess;
  std::vector<muo::nccl::Work> work = std::exchange(group.work, {});
  if (const Result result = muo::nccl::outcome("ncclGroupEnd"); result != Result::kSuccess)
    return result;
  return work.empty() ? Result::kSuccess
                      : muo::nccl::submit(group.comm, group.stream, std::move(work));
}

const muo::test::NcclStandIn* nccl_stand_in() {
  static const muo::test::NcclStandIn controls = {
      .set_version = [](int version) { settings().version = version; },
      .fail_next =
          [](const char* function, int result) {
            const std::lock_guard lock(settings().mutex);
            settings().failures[function] = Result{result};
          },
      .calls =
          [] {
            const std::lock_guard lock(settings().mutex);
            settings().told = std::exchange(settings().calls, "");
            return settings().told.c_str();
          },
      .alive = [] { return settings().alive.load(); }};
  return &controls;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
