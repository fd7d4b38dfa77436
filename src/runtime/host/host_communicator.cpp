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
  void check() const override {}  // a collective that was broken has thrown

 private:
  void enqueue(Stream& stream, const Collective& collective) override {
    const Tensor& out = collective.out;
    const Tensor& in = collective.in;
    std::array<Access, 2> accesses;
    std::size_t touched = 0;
    if (out) accesses[touched++] = access_of(out, true);
    if (in) accesses[touched++] = access_of(in, false);
    stream.enqueue_host(concat(name_of(collective.kind), " #", collective.tag),
                        {accesses.data(), touched},
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
    if (world() > 1) group_.rendezvous.arrive([this] { check_paired(); }, kSite);
    if (!group_.mispaired.empty()) throw Error(group_.mispaired);
    if (group_.faults.before_reading) group_.faults.before_reading(rank());
    move(mine);
    if (!group_.faults.skip_exit_barrier) meet();  // nobody leaves while a peer reads its buffers
  }

  void meet() {
    if (world() > 1) group_.rendezvous.arrive({}, kSite);
  }

  // By one rank for all: a rank that throws takes its post's counts with it.
  void check_paired() { group_.mispaired = mispairing(group_.posts); }

  [[nodiscard]] const Collective& peer(int rank) const {
    return group_.posts[static_cast<std::size_t>(rank)];
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
        // Every rank adds its share, straight into the root's buffer.
        const auto [begin, count] = share_of(rank(), world(), mine.count);
        const Collective& root = peer(mine.root);
        return add(root, root.out.data + begin * size_of(root.out_dtype), begin, count);
      }
      case CollectiveKind::kBroadcast:
        if (rank() != mine.root)
          copy(mine, mine.out.data, 0, peer(mine.root).in.data, 0, mine.count);
        return;
      case CollectiveKind::kGather:
        return copy(mine, peer(mine.root).out.data, offset_of(rank(), mine.counts), mine.in.data, 0,
                    mine.counts[static_cast<std::size_t>(rank())]);
      case CollectiveKind::kScatter:
        return copy(mine, mine.out.data, 0, peer(mine.root).in.data, offset_of(rank(), mine.counts),
                    mine.counts[static_cast<std::size_t>(rank())]);
      case CollectiveKind::kAllToAll: {
        const std::int64_t segment = mine.count / world();
        for (int p = 0; p < world(); ++p)
          copy(mine, mine.out.data, p * segment, peer(p).in.data, rank() * segment, segment);
        return;
      }
    }
  }

  void gather_all(const Collective& mine) {
    std::int64_t offset = 0;
    for (int p = 0; p < world(); ++p) {
      const std::int64_t count =
          mine.counts.empty() ? mine.count / world() : mine.counts[static_cast<std::size_t>(p)];
      copy(mine, mine.out.data, offset, peer(p).in.data, 0, count);
      offset += count;
    }
  }

  // Each rank sums its share into its own output, then all copy the others' shares. In place this
  // is safe: a rank's share of anybody's input is read by that rank alone.
  void sum_everywhere(const Collective& mine) {
    const auto [begin, count] = share_of(rank(), world(), mine.count);
    add(mine, mine.out.data + begin * size_of(mine.dtype), begin, count);
    meet();
    for (int p = 0; p < world(); ++p) {
      const auto [first, n] = share_of(p, world(), mine.count);
      copy(mine, mine.out.data, first, peer(p).out.data, first, n);
    }
  }

  // out <- sum of elements [begin, begin + count) of every rank's input.
  void add(const Collective& mine, std::byte* out, std::int64_t begin, std::int64_t count) {
    for (std::size_t p = 0; p < inputs_.size(); ++p)
      inputs_[p] = group_.posts[p].in.data + begin * size_of(mine.dtype);
    add_ranks(inputs_, mine.dtype, out, mine.out_dtype, count);
  }

  static void copy(const Collective& mine, std::byte* to, std::int64_t to_element,
                   const std::byte* from, std::int64_t from_element, std::int64_t count) {
    const std::int64_t size = size_of(mine.dtype);
    std::byte* target = to + to_element * size;
    const std::byte* source = from + from_element * size;
    if (target != source) std::memcpy(target, source, static_cast<std::size_t>(count * size));
  }

  HostCommunicatorGroup& group_;
  std::vector<const std::byte*> inputs_;
  std::int64_t bytes_sent_ = 0;
};

class HostCommunicators final : public CommunicatorGroup {
 public:
  HostCommunicators(int world, Rendezvous& rendezvous) : group_(world, rendezvous) {}
  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device) override {
    return make_host_communicator(group_, device.rank());
  }
  void abort() noexcept override { group_.rendezvous.break_all(); }

 private:
  HostCommunicatorGroup group_;
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(HostCommunicatorGroup& group, int rank) {
  return std::make_unique<HostCommunicator>(group, rank);
}

std::unique_ptr<CommunicatorGroup> make_host_communicators(int world, Rendezvous& rendezvous) {
  return std::make_unique<HostCommunicators>(world, rendezvous);
}

std::unique_ptr<CommunicatorGroup> make_host_communicators(const CommunicatorMembers& members) {
  MUO_CHECK(members.processes == nullptr, "ranks of several processes");
  return make_host_communicators(members.world, members.meeting);
}

}  // namespace muo
