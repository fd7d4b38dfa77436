#include "runtime/host/host_communicator.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "runtime/host/rank_sum.h"

namespace muo {
namespace {

constexpr std::string_view kSite = "collective";

class HostCommunicator final : public CheckedCommunicator {
 public:
  HostCommunicator(HostCommunicatorGroup& group, int rank)
      : CheckedCommunicator(rank, static_cast<int>(group.posts.size())),
        group_(group),
        inputs_(group.posts.size()) {}

  [[nodiscard]] std::int64_t bytes_sent() const override { return bytes_sent_; }
  void check() const override {}  // an aborted collective has thrown

 private:
  void enqueue(Stream& stream, const Collective& collective) override {
    stream.enqueue_host(collective.node_name(), collective.accesses(),
                        [this, mine = collective,
                         counts = std::vector<std::int64_t>(collective.counts.begin(),
                                                            collective.counts.end())]() mutable {
                          mine.counts = counts;
                          run(mine);
                          bytes_sent_ += mine.wire_bytes;
                        });
  }

  void run(const Collective& mine) {
    group_.posts[static_cast<std::size_t>(rank())] = mine;
    barrier([this] { enter(); });
    if (!group_.mispaired.empty()) throw Error(group_.mispaired);
    if (group_.faults.before_reading) group_.faults.before_reading(rank());
    move(mine);
    if (!group_.faults.skip_exit_barrier)
      barrier();  // no rank leaves while a peer reads its buffers
  }

  void barrier(const std::function<void()>& leader = {}) {
    if (world() > 1) group_.rendezvous.arrive(leader, kSite);
  }

  // Called by the last rank to arrive, for all: a rank that throws invalidates its post's counts.
  void enter() {
    if (!group_.remote) {
      group_.mispaired = mispairing(group_.posts);
      return;
    }
    group_.mispaired = group_.remote->mispairing(group_.posts);
    if (group_.mispaired.empty()) group_.remote->exchange_inputs(group_.posts, group_.first);
  }
  void exchange_sums() { group_.remote->exchange_sums(group_.posts, group_.first); }

  [[nodiscard]] const Collective& peer(int rank) const {
    return group_.posts[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const std::byte* input(int rank, std::int64_t element) const {
    return element_of(peer(rank).in, rank, element);
  }
  [[nodiscard]] const std::byte* output(int rank, std::int64_t element) const {
    return element_of(peer(rank).out, rank, element);
  }
  // The tensors of a remote rank's post contain only the elements that are needed here.
  [[nodiscard]] const std::byte* element_of(const Tensor& tensor, int rank,
                                            std::int64_t element) const {
    return tensor.data +
           (element - group_.first[static_cast<std::size_t>(rank)]) * size_of(tensor.dtype);
  }
  // This rank's share of work that is divided among the ranks of this process.
  [[nodiscard]] Share local_share(std::int64_t count) const {
    return share_of(rank() - group_.local.first, group_.local.count, count);
  }

  void move(const Collective& mine) {
    switch (mine.kind) {
      case CollectiveKind::kReduceScatter:
        return add(mine, mine.out.data, mine.count / world() * rank(), mine.count / world());
      case CollectiveKind::kAllGather:
      case CollectiveKind::kAllGatherV:
        return gather_all(mine);
      case CollectiveKind::kAllReduce:
        return sum_everywhere(mine);
      case CollectiveKind::kReduce: {
        // All ranks of the root's process sum, directly into the root's buffer.
        if (!group_.local.contains(mine.root)) return;
        const Collective& root = peer(mine.root);
        const auto [begin, count] = local_share(mine.count);
        return add(root, root.out.data + begin * size_of(root.out_dtype), begin, count);
      }
      case CollectiveKind::kBroadcast:
        if (rank() != mine.root) copy(mine.out, 0, input(mine.root, 0), mine.count);
        return;
      case CollectiveKind::kGather: {
        if (!group_.local.contains(mine.root)) return;
        const auto [first, count] = local_share(world());
        for (int p = static_cast<int>(first); p < static_cast<int>(first + count); ++p)
          copy(peer(mine.root).out, offset_of(p, mine.counts), input(p, 0), mine.counts[at(p)]);
        return;
      }
      case CollectiveKind::kScatter:
        return copy(mine.out, 0, input(mine.root, offset_of(rank(), mine.counts)),
                    mine.counts[at(rank())]);
      case CollectiveKind::kAllToAll: {
        const std::int64_t segment = mine.count / world();
        for (int p = 0; p < world(); ++p)
          copy(mine.out, p * segment, input(p, rank() * segment), segment);
        return;
      }
    }
  }

  void gather_all(const Collective& mine) {
    std::int64_t offset = 0;
    for (int p = 0; p < world(); ++p) {
      const std::int64_t count = mine.counts.empty() ? mine.count / world() : mine.counts[at(p)];
      copy(mine.out, offset, input(p, 0), count);
      offset += count;
    }
  }

  // Each rank sums its share into its own output, then all copy the others' shares. This is safe in
  // place: a rank's share of any rank's input is read by that rank alone.
  void sum_everywhere(const Collective& mine) {
    const auto [begin, count] = share_of(rank(), world(), mine.count);
    add(mine, mine.out.data + begin * size_of(mine.dtype), begin, count);
    if (group_.remote)
      barrier([this] { exchange_sums(); });
    else
      barrier();
    for (int p = 0; p < world(); ++p) {
      const auto [first, n] = share_of(p, world(), mine.count);
      copy(mine.out, first, output(p, first), n);
    }
  }

  // out <- sum of elements [begin, begin + count) of every rank's input.
  void add(const Collective& mine, std::byte* out, std::int64_t begin, std::int64_t count) {
    for (int p = 0; p < world(); ++p)
      inputs_[at(p)] = input(p, begin);
    add_ranks(inputs_, mine.dtype, out, mine.out_dtype, count);
  }

  static void copy(const Tensor& to, std::int64_t to_element, const std::byte* source,
                   std::int64_t count) {
    const std::int64_t size = size_of(to.dtype);
    std::byte* target = to.data + to_element * size;
    if (count > 0 && target != source)
      std::memcpy(target, source, static_cast<std::size_t>(count * size));
  }
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  HostCommunicatorGroup& group_;
  std::vector<const std::byte*> inputs_;
  std::int64_t bytes_sent_ = 0;
};

class HostCommunicators final : public CommunicatorGroup {
 public:
  HostCommunicators(const HostWorld& world, Rendezvous& rendezvous)
      : exchange_(world.exchange), group_(world, rendezvous) {}
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device) override {
    return make_host_communicator(group_, device.rank());
  }
  void abort() noexcept override {
    group_.rendezvous.break_all();
    if (exchange_ != nullptr) exchange_->abort();
  }

 private:
  ProcessExchange* const exchange_;
  HostCommunicatorGroup group_;
};

HostWorld one_process(int ranks) { return {.processes = {{.first = 0, .count = ranks}}}; }

}  // namespace

HostCommunicatorGroup::HostCommunicatorGroup(const HostWorld& world, Rendezvous& rendezvous_,
                                             CommunicatorFaults faults_)
    : local(world.local()),
      rendezvous(rendezvous_),
      faults(std::move(faults_)),
      posts(static_cast<std::size_t>(world.ranks())),
      first(posts.size()) {
  if (world.processes.size() > 1) remote.emplace(world);
}

HostCommunicatorGroup::HostCommunicatorGroup(int world, Rendezvous& rendezvous_,
                                             CommunicatorFaults faults_)
    : HostCommunicatorGroup(one_process(world), rendezvous_, std::move(faults_)) {}

std::unique_ptr<Communicator> make_host_communicator(HostCommunicatorGroup& group, int rank) {
  return std::make_unique<HostCommunicator>(group, rank);
}

std::unique_ptr<CommunicatorGroup> make_host_communicators(const HostWorld& world,
                                                           Rendezvous& rendezvous) {
  return std::make_unique<HostCommunicators>(world, rendezvous);
}

std::unique_ptr<CommunicatorGroup> make_host_communicators(int world, Rendezvous& rendezvous) {
  return make_host_communicators(one_process(world), rendezvous);
}

}  // namespace muo
