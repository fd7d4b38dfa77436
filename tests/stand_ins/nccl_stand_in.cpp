// A libnccl for tests: NCCL's C interface, on the stand-in of CUDA. A call enqueues work on the
// stream, where the ranks synchronise and move values, in the order of NCCL's ring. As NCCL's
// kernels do, the work ends silently once its communicator is aborted; as in NCCL, destroying a
// communicator waits for the graphs that contain its work.

#include "support/nccl_stand_in.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stand_ins/launches.h"
#include "stand_ins/nccl_world.h"

namespace muo::nccl {
namespace {

struct Settings {
  std::mutex mutex;
  int version = 22809;
  std::map<std::string, Result> failures;
  std::string calls, reported_calls;
  std::atomic<const char*> last_error = "";
  std::map<std::uint64_t, std::shared_ptr<World>> worlds;  // by unique id, until all have joined
  std::atomic<int> alive = 0, open_groups = 0, max_ctas = 0;
};
Settings& settings() {
  // Never destroyed, as an abandoned thread may still wait in a call when the process ends.
  static Settings& the_settings = *new Settings;
  return the_settings;
}

}  // namespace
}  // namespace muo::nccl

struct ncclComm {
  std::shared_ptr<muo::nccl::World> world;
  int rank = 0;
  std::string name;
  // Every piece of enqueued or captured work has a reference.
  std::shared_ptr<int> work = std::make_shared<int>(0);
};

namespace muo::nccl {
namespace {

struct OpenGroup {
  int depth = 0;
  Comm comm = nullptr;
  NativeStream stream = nullptr;
  std::vector<Work> work;
};
thread_local OpenGroup open_group;

// The planted failure of `function`, if any.
Result outcome(const char* function) {
  Settings& s = settings();
  const std::lock_guard lock(s.mutex);
  const auto failure = s.failures.find(function);
  if (failure == s.failures.end()) return Result::kSuccess;
  const Result result = failure->second;
  s.failures.erase(failure);
  s.last_error = "planted failure";
  return result;
}

Result submit(Comm comm, NativeStream stream, std::vector<Work> work) {
  stand_in::Addresses addresses;
  for (const Work& w : work) {
    addresses.add(w.in);
    addresses.add(w.out);
  }
  const cudaError_t error =
      stand_in::enqueue_collective(stream, "a kernel of NCCL", addresses,
                                   [world = comm->world, rank = comm->rank, alive = comm->work,
                                    work = std::move(work)] { world->run(rank, work); });
  return error == cudaSuccess ? Result::kSuccess : Result::kUnhandledCudaError;
}

// Null if there is none, or if its maker is gone.
std::shared_ptr<World> find_world(const UniqueId& id) {
  const std::lock_guard lock(settings().mutex);
  std::shared_ptr<World>& known = settings().worlds[number_of(id)];
  if (known == nullptr)
    if (auto board = SharedBoard::open(id)) known = std::make_shared<World>(std::move(board));
  return known;
}
void forget_world(const UniqueId& id) {
  const std::lock_guard lock(settings().mutex);
  settings().worlds.erase(number_of(id));
}

Result call(const char* function, Comm comm, NativeStream stream, const Work& work) {
  if (work.peer < -1 || work.peer >= comm->world->size()) return Result::kInvalidArgument;
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
  const char* set = std::getenv("NCCL_STAND_IN_VERSION");  // NOLINT(concurrency-mt-unsafe)
  *version = set != nullptr ? std::stoi(set) : settings().version;
  return Result::kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  if (const Result result = muo::nccl::outcome("ncclGetUniqueId"); result != Result::kSuccess)
    return result;
  auto board = muo::nccl::SharedBoard::make(*id);
  if (board == nullptr) return Result::kSystemError;
  const std::lock_guard lock(settings().mutex);
  settings().worlds[muo::nccl::number_of(*id)] = std::make_shared<World>(std::move(board));
  return Result::kSuccess;
}

Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xCAFEBEEF || config->size != sizeof(Config) || config->blocking != 1 ||
      config->max_ctas < 1 || config->max_ctas > 16)
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
  const std::shared_ptr<World> world = muo::nccl::find_world(id);
  if (world == nullptr) return Result::kRemoteError;
  if (const Result result = world->join(size, rank); result != Result::kSuccess) return result;
  muo::nccl::forget_world(id);
  ++settings().alive;
  settings().max_ctas = config->max_ctas;
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
  *error = comm->world->mispaired() ? Result::kInvalidUsage : muo::nccl::outcome("a collective");
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

const char* ncclGetLastError(Comm /*comm*/) { return settings().last_error; }

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
  ++settings().open_groups;
  return Result::kSuccess;
}
Result ncclGroupEnd() {
  muo::nccl::OpenGroup& group = muo::nccl::open_group;
  --settings().open_groups;
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
            settings().reported_calls = std::exchange(settings().calls, "");
            return settings().reported_calls.c_str();
          },
      .alive = [] { return settings().alive.load(); },
      .open_groups = [] { return settings().open_groups.load(); },
      .max_ctas = [] { return settings().max_ctas.load(); }};
  return &controls;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
