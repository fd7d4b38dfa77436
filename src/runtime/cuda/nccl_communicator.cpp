#include "runtime/cuda/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "runtime/comm/collective.h"
#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/gpu_identity.h"
#include "runtime/cuda/nccl_bf16.h"
#include "runtime/cuda/nccl_handle.h"
#include "runtime/cuda/nccl_library.h"
#include "runtime/cuda/peer_access.h"
#include "runtime/cuda/relaxed_capture.h"
#include "runtime/cuda/stream_context.h"
#include "runtime/rendezvous.h"

namespace muo::nccl {
namespace {

// Maximum number of CTAs that NCCL may occupy on a GPU, for all ranks there; they are lost to
// concurrent matrix products.
constexpr int kMaxCtas = 16;

constexpr std::chrono::seconds kTimeout(10);  // for destroying NCCL's communicators

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Type::kFloat32;
    case DType::kBF16:
      return Type::kBfloat16;
    case DType::kF64:
      return Type::kFloat64;
    case DType::kI32:
      return Type::kInt32;
    case DType::kI64:
      return Type::kInt64;
    case DType::kBytes:
    case DType::kU16:  // never sent
      break;
  }
  return Type::kUint8;
}

std::size_t count_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

class Group;

class NcclCommunicator final : public CheckedCommunicator {
 public:
  NcclCommunicator(Group& group, int rank, std::shared_ptr<Handle> graph,
                   std::shared_ptr<Handle> eager);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  [[nodiscard]] std::int64_t bytes_sent() const override { return bytes_sent_; }
  void check() const override;
  // Runs one collective per kind of connection on both communicators, so that connections exist
  // before a capture.
  void connect(Device& device);

 private:
  void enqueue(Stream& stream, const Collective& collective) override;
  void enqueue_on(Handle& handle, Stream& stream, const Collective& collective);
  void issue(Comm comm, Stream& stream, const Collective& c) const;
  void send_parts(Comm comm, Stream& stream, const Collective& c) const;
  void exchange(Comm comm, Stream& stream, const Collective& c) const;
  void all_gather_parts(Comm comm, Stream& stream, const Collective& c) const;

  Group& group_;
  const std::shared_ptr<Handle> graph_, eager_;
  std::unique_ptr<Buffer> scratch_;  // of add_bf16()
  std::int64_t bytes_sent_ = 0;
};

class Group final : public CommunicatorGroup {
 public:
  explicit Group(const CommunicatorMembers& members)
      : members_(members),
        library_(load("libnccl.so.2")),
        gpus_(static_cast<std::size_t>(members.local.count), -1) {
    if (!library_.missing.empty()) throw InputError(concat("--comm nccl: ", library_.missing));
    set_environment();
  }

  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device) override {
    gpu_of(device.rank()) = current_gpu();
    local_barrier([this] {
      share_gpus();
      const std::string ids = broadcast_text([this] { return new_ids(); });
      MUO_CHECK(ids.size() == sizeof ids_, "NCCL's ids of ", ids.size(), " bytes");
      std::memcpy(ids_, ids.data(), sizeof ids_);
    });
    const auto graph = init(device.rank(), ids_[0], "graph");
    const auto eager = init(device.rank(), ids_[1], "eager");
    auto end = std::make_unique<NcclCommunicator>(*this, device.rank(), graph, eager);
    end->connect(device);
    return end;
  }

  void abort() noexcept override {
    if (aborted_.exchange(true)) return;
    std::vector<std::shared_ptr<Handle>> handles;
    {
      const std::lock_guard lock(mutex_);
      handles.swap(handles_);
    }
    // Concurrently: the first rank's kernels may wait until the last rank's end.
    const auto all = [handles] {
      std::vector<std::thread> threads;
      threads.reserve(handles.size());
      for (const std::shared_ptr<Handle>& handle : handles)
        try {
          threads.push_back(start_thread([handle] { handle->abort(); }));
        } catch (const ThreadRefused&) {  // no thread available: sequentially
          handle->abort();
        }
      for (std::thread& thread : threads)
        thread.join();
    };
    static_cast<void>(run_with_deadline(kTimeout, all));
  }

  // Barrier of all ranks of all processes, outside captures.
  void world_barrier() {
    local_barrier([this] {
      if (members_.processes != nullptr) members_.processes->barrier(Channel::kRun, kSite);
    });
  }
  [[nodiscard]] bool aborted() const { return aborted_; }
  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] int world() const { return members_.world; }

 private:
  static constexpr std::string_view kSite = "joining NCCL";

  [[nodiscard]] int& gpu_of(int rank) {
    return gpus_[static_cast<std::size_t>(rank - members_.local.first)];
  }
  // Barrier of this process' local ranks; the last to arrive runs `leader`.
  void local_barrier(const std::function<void()>& leader) {
    members_.rendezvous.arrive(leader, kSite);
  }
  // Called by a leader, like all functions below. Returns the result of process 0's `make`.
  [[nodiscard]] std::string broadcast_text(const std::function<std::string()>& make) const {
    return members_.processes == nullptr
               ? make()
               : members_.processes->broadcast(Channel::kRun, kSite, make);
  }
  // The identities of all ranks' GPUs, in the order of ranks.
  [[nodiscard]] std::string gpus_of_world() const {
    std::string gpus;
    for (const int gpu : gpus_)
      gpus += cuda::identity_of(gpu);
    if (members_.processes == nullptr) return gpus;
    const auto all = members_.processes->gather(Channel::kRun, kSite, gpus);
    return broadcast_text([&] { return std::accumulate(all.begin(), all.end(), std::string()); });
  }
  // Divides each GPU's CTAs among its ranks: their kernels wait for each other, so all must fit at
  // once. NCCL needs the same number on every rank.
  void share_gpus() {
    const std::string gpus = gpus_of_world();
    std::map<std::string, std::vector<int>> ranks_of;
    std::size_t most = 1;
    for (int rank = 0; rank < world(); ++rank) {
      const std::string gpu =
          gpus.substr(static_cast<std::size_t>(rank) * cuda::kIdentityBytes, cuda::kIdentityBytes);
      std::vector<int>& ranks = ranks_of[gpu];
      ranks.push_back(rank);
      if (ranks.size() > 1 && !may_share_gpus(library_))
        throw InputError(sharing(ranks.front(), rank, gpu));
      most = std::max(most, ranks.size());
    }
    max_ctas_ = std::max(1, kMaxCtas / static_cast<int>(most));
  }
  [[nodiscard]] std::string sharing(int a, int b, const std::string& gpu) const {
    const std::string ranks = concat("--comm nccl: ranks ", a, " and ", b, " share GPU ");
    const std::string refusal = concat(
        ", which needs ", kSharingVariable, "=1 and NCCL ", version_text(kOldestSharingVersion),
        " or newer (found: ", version_text(library_.version), "); use ");
    constexpr const char* kAdvice = "a GPU for each rank";
    if (members_.processes == nullptr)
      return concat(ranks, gpus_[static_cast<std::size_t>(a)], refusal, "--comm peer, or ",
                    kAdvice);
    const ProcessGroup& processes = *members_.processes;
    return concat(ranks, cuda::identity_text(gpu), " of ",
                  processes.describe(processes.process_of(a)), " and ",
                  processes.describe(processes.process_of(b)), refusal, kAdvice);
  }
  [[nodiscard]] std::string new_ids() const {
    UniqueId ids[2] = {};
    for (UniqueId& id : ids)
      nccl::check(library_, library_.functions.get_unique_id(&id), "ncclGetUniqueId", nullptr,
                  "while making a communicator");
    return {reinterpret_cast<const char*>(ids), sizeof ids};
  }

  // NCCL waits here for all ranks, even for one that has failed: so it runs on a thread that can be
  // abandoned.
  std::shared_ptr<Handle> init(int rank, const UniqueId& id, const char* name) {
    struct Made {
      Comm comm = nullptr;
      Result result = Result::kInternalError;
    };
    const auto made = std::make_shared<Made>();
    const auto task = [made, f = library_.functions, gpu = gpu_of(rank), id, name, rank,
                       world = world(), max_ctas = max_ctas_] {
      MUO_CUDA_CHECK(cudaSetDevice(gpu));
      cuda::reserve_for_collectives(gpu, kMaxCtas);
      Config config;
      config.blocking = 1;
      config.max_ctas = max_ctas;
      config.comm_name = name;
      made->result = f.init_rank(&made->comm, world, id, rank, &config);
    };
    if (!run_while([this] { return !aborted_; }, task))
      throw PeerFailed("a peer failed while this rank joined NCCL");
    nccl::check(library_, made->result, "ncclCommInitRankConfig", nullptr,
                concat("rank ", rank, " of ", world()));
    auto handle =
        std::make_shared<Handle>(library_, made->comm, concat("'", name, "' of rank ", rank));
    const std::lock_guard lock(mutex_);
    handles_.push_back(handle);
    if (!aborted_) return handle;
    handle->abort();
    throw PeerFailed("a peer failed while this rank joined NCCL");
  }

  const CommunicatorMembers members_;
  const Library library_;
  std::vector<int> gpus_;  // by local rank
  int max_ctas_ = 0;       // of each rank
  UniqueId ids_[2] = {};
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Handle>> handles_;  // of all local ranks
};

NcclCommunicator::NcclCommunicator(Group& group, int rank, std::shared_ptr<Handle> graph,
                                   std::shared_ptr<Handle> eager)
    : CheckedCommunicator(rank, group.world()),
      group_(group),
      graph_(std::move(graph)),
      eager_(std::move(eager)) {}

NcclCommunicator::~NcclCommunicator() {
  static_cast<void>(graph_->destroy(kTimeout));
  static_cast<void>(eager_->destroy(kTimeout));
}

void NcclCommunicator::check() const {
  if (group_.aborted()) throw PeerFailed("the group was aborted");
  for (const std::shared_ptr<Handle>& handle : {graph_, eager_})
    handle->use([this](Comm comm) {
      Result error = Result::kSuccess;
      const Functions& f = group_.library().functions;
      nccl::check(group_.library(), f.get_async_error(comm, &error), "ncclCommGetAsyncError", comm,
                  concat("on rank ", rank()));
      if (error != Result::kInProgress)
        nccl::check(group_.library(), error, "a collective", comm, concat("on rank ", rank()));
    });
}

void NcclCommunicator::connect(Device& device) {
  scratch_ = device.allocate(bf16_scratch_bytes(world()), "NCCL's sums of bf16");
  const std::unique_ptr<Stream> stream = device.make_stream(StreamPriority::kHigh);
  const std::int64_t bytes = world() * static_cast<std::int64_t>(sizeof(float));
  const std::unique_ptr<Buffer> memory = device.allocate(2 * bytes, "connecting NCCL");
  const Tensor in{memory->data(), {world()}, DType::kF32, rank()};
  const Tensor out{memory->data() + bytes, {world()}, DType::kF32, rank()};
  // Barriers, as allocating and freeing memory, here or by NCCL as it connects, may wait for this
  // GPU, where NCCL waits for a peer's, and so block that one's start.
  group_.world_barrier();
  for (const std::shared_ptr<Handle>& handle : {graph_, eager_})
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllToAll}) {
      enqueue_on(*handle, *stream,
                 {.kind = kind, .count = world(), .dtype = DType::kF32, .out = out, .in = in});
      stream->synchronize();
      group_.world_barrier();
    }
}

void NcclCommunicator::enqueue(Stream& stream, const Collective& collective) {
  Handle& handle = cuda::is_capturing(stream.native()) ? *graph_ : *eager_;
  enqueue_on(handle, stream, collective);
  bytes_sent_ += collective.wire_bytes;
}

void NcclCommunicator::enqueue_on(Handle& handle, Stream& stream, const Collective& collective) {
  if (group_.aborted()) throw PeerFailed("the group was aborted");
  if (collective.count == 0) return;  // 0 on every rank
  try {
    handle.use([&](Comm comm) { issue(comm, stream, collective); });
  } catch (const Error&) {
    if (group_.aborted()) throw PeerFailed("the group was aborted");
    throw;
  }
}

// Names the function and the collective in the error.
#define MUO_NCCL(function, name, ...)                                                         \
  nccl::check(group_.library(), group_.library().functions.function(__VA_ARGS__), name, comm, \
              concat(c.text(), " on rank ", rank()))

void NcclCommunicator::issue(Comm comm, Stream& stream, const Collective& c) const {
  if (c.dtype == DType::kBF16 && is_sum(c.kind))
    return add_bf16({group_.library(), comm, rank(), world(), scratch_->data()}, stream, c);
  const Type type = type_of(c.dtype);
  const NativeStream native = stream.native();
  switch (c.kind) {
    case CollectiveKind::kReduceScatter:
      MUO_NCCL(reduce_scatter, "ncclReduceScatter", c.in.data, c.out.data, count_of(c.out), type,
               Op::kSum, comm, native);
      return;
    case CollectiveKind::kAllReduce:
      MUO_NCCL(all_reduce, "ncclAllReduce", c.in.data, c.out.data, count_of(c.in), type, Op::kSum,
               comm, native);
      return;
    case CollectiveKind::kReduce:
      MUO_NCCL(reduce, "ncclReduce", c.in.data, c.out.data, count_of(c.in), type, Op::kSum, c.root,
               comm, native);
      return;
    case CollectiveKind::kAllGather:
      MUO_NCCL(all_gather, "ncclAllGather", c.in.data, c.out.data, count_of(c.in), type, comm,
               native);
      return;
    case CollectiveKind::kBroadcast: {
      const Tensor& values = c.in ? c.in : c.out;
      MUO_NCCL(broadcast, "ncclBroadcast", values.data, values.data, count_of(values), type, c.root,
               comm, native);
      return;
    }
    case CollectiveKind::kAllGatherV:
      return all_gather_parts(comm, stream, c);
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      return send_parts(comm, stream, c);
    case CollectiveKind::kAllToAll:
      return exchange(comm, stream, c);
  }
}

#define MUO_GROUPED(call, name) \
  nccl::check(group_.library(), call, name, comm, concat(c.text(), " on rank ", rank()))

// One broadcast per rank, or NCCL's faster all-gather if all parts are equal.
void NcclCommunicator::all_gather_parts(Comm comm, Stream& stream, const Collective& c) const {
  const Type type = type_of(c.dtype);
  const bool equal =
      std::adjacent_find(c.counts.begin(), c.counts.end(), std::not_equal_to<>()) == c.counts.end();
  if (equal) {
    MUO_NCCL(all_gather, "ncclAllGather", c.in.data, c.out.data, count_of(c.in), type, comm,
             stream.native());
    return;
  }
  Grouped group(group_.library().functions);
  MUO_GROUPED(group.start(), "ncclGroupStart");
  std::int64_t begin = 0;
  for (int r = 0; r < world(); ++r) {
    const std::int64_t count = c.counts[static_cast<std::size_t>(r)];
    const Tensor part = c.out.elements(begin, count);
    begin += count;
    if (count > 0)
      MUO_NCCL(broadcast, "ncclBroadcast", r == rank() ? c.in.data : part.data, part.data,
               count_of(part), type, r, comm, stream.native());
  }
  MUO_GROUPED(group.end(), "ncclGroupEnd");
}

// Gather and scatter: the root copies its own part, the others' are sent.
void NcclCommunicator::send_parts(Comm comm, Stream& stream, const Collective& c) const {
  const Type type = type_of(c.dtype);
  const bool gathers = c.kind == CollectiveKind::kGather;
  if (rank() != c.root) {
    const Tensor& part = gathers ? c.in : c.out;
    if (part.numel() == 0) return;
    if (gathers)
      MUO_NCCL(send, "ncclSend", part.data, count_of(part), type, c.root, comm, stream.native());
    else
      MUO_NCCL(receive, "ncclRecv", part.data, count_of(part), type, c.root, comm, stream.native());
    return;
  }
  const Tensor& full = gathers ? c.out : c.in;
  Grouped group(group_.library().functions);
  MUO_GROUPED(group.start(), "ncclGroupStart");
  Tensor own;
  std::int64_t begin = 0;
  for (int r = 0; r < world(); ++r) {
    const Tensor part = full.elements(begin, c.counts[static_cast<std::size_t>(r)]);
    begin += part.numel();
    if (r == rank())
      own = part;
    else if (part.numel() > 0 && gathers)
      MUO_NCCL(receive, "ncclRecv", part.data, count_of(part), type, r, comm, stream.native());
    else if (part.numel() > 0)
      MUO_NCCL(send, "ncclSend", part.data, count_of(part), type, r, comm, stream.native());
  }
  MUO_GROUPED(group.end(), "ncclGroupEnd");
  if (own.numel() > 0) stream.copy(gathers ? own : c.out, gathers ? c.in : own);
}

void NcclCommunicator::exchange(Comm comm, Stream& stream, const Collective& c) const {
  const Type type = type_of(c.dtype);
  const std::int64_t each = c.in.numel() / world();
  if (each == 0) return;
  Grouped group(group_.library().functions);
  MUO_GROUPED(group.start(), "ncclGroupStart");
  for (int r = 0; r < world(); ++r) {
    if (r == rank()) continue;
    const Tensor to = c.in.elements(r * each, each);
    const Tensor from = c.out.elements(r * each, each);
    MUO_NCCL(send, "ncclSend", to.data, count_of(to), type, r, comm, stream.native());
    MUO_NCCL(receive, "ncclRecv", from.data, count_of(from), type, r, comm, stream.native());
  }
  MUO_GROUPED(group.end(), "ncclGroupEnd");
  stream.copy(c.out.elements(rank() * each, each), c.in.elements(rank() * each, each));
}

#undef MUO_GROUPED
#undef MUO_NCCL

}  // namespace

std::unique_ptr<CommunicatorGroup> make_nccl_communicators(const CommunicatorMembers& members) {
  return std::make_unique<Group>(members);
}

}  // namespace muo::nccl
