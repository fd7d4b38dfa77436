#include "runtime/cuda/peer_communicator.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/comm/collective.h"
#include "runtime/comm/peer_work.h"
#include "runtime/cuda/peer_access.h"
#include "runtime/cuda/peer_kernels.h"
#include "runtime/cuda/stream_context.h"
#include "runtime/rendezvous.h"

namespace muo {
namespace {

using peer::Control;
using peer::Mailbox;
using peer::Reason;

constexpr std::string_view kSite = "collective";

std::uint32_t load(const std::uint32_t& word) {
  return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_acquire);
}

std::int64_t from_environment(const char* name, std::int64_t otherwise, std::int64_t least,
                              std::int64_t most, const char* of_what) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) return otherwise;
  const std::string_view number = text;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{} || end != number.data() + number.size() || value < least || value > most)
    throw InputError(concat(name, " must be a number of ", of_what, ", not '", text, "'"));
  return value;
}

std::chrono::milliseconds deadline_from_environment(std::chrono::milliseconds otherwise) {
  return std::chrono::milliseconds(from_environment("MUO_PEER_DEADLINE_MS", otherwise.count(), 1,
                                                    std::numeric_limits<std::int64_t>::max(),
                                                    "milliseconds"));
}

// State shared by all ranks. It owns their words, as a peer may still write to those of a rank that
// is gone.
struct PeerGroup {
  struct Member {
    std::unique_ptr<Buffer> mailbox, control;
    int gpu = -1;
    Control* words = nullptr;
  };

  PeerGroup(int world_, Rendezvous& rendezvous_, std::chrono::milliseconds deadline_)
      : world(world_),
        rendezvous(rendezvous_),
        deadline(deadline_from_environment(deadline_)),
        threads(static_cast<int>(from_environment("MUO_PEER_THREADS", peer::kMaxThreads,
                                                  peer::kMaxRanks, peer::kMaxThreads,
                                                  "threads from 16 to 512"))),
        members(static_cast<std::size_t>(world_)) {
    for (auto& of_turn : posts)
      of_turn.resize(members.size());
  }

  void abort() noexcept {
    aborted = true;
    for (Member& member : members)
      if (Control* words = std::atomic_ref(member.words).load())
        std::atomic_ref(words->abort).store(1, std::memory_order_release);
  }

  const int world;
  Rendezvous& rendezvous;
  const std::chrono::milliseconds deadline;
  const int threads;  // per CTA
  std::atomic<bool> aborted = false;
  std::vector<Member> members;  // by rank
  // Double-buffered: a rank may write its next post while slow ones still read this one. It cannot
  // be two ahead, as that needs the slow ranks' arrival at the next barrier.
  std::vector<Collective> posts[2];
  std::string mispaired[2];
};

class PeerCommunicator final : public CheckedCommunicator {
 public:
  PeerCommunicator(PeerGroup& group, int rank)
      : CheckedCommunicator(rank, group.world),
        group_(group),
        control_(*group.members[static_cast<std::size_t>(rank)].words) {}

  [[nodiscard]] std::int64_t bytes_sent() const override {
    return static_cast<std::int64_t>(
        std::atomic_ref(control_.sent).load(std::memory_order_acquire));
  }

  void check() const override {
    const auto reason = static_cast<Reason>(load(control_.reason));
    if (reason == Reason::kNone) {
      if (group_.aborted) throw PeerFailed("a peer failed");
      return;
    }
    const std::string where =
        concat(name_of(static_cast<CollectiveKind>(control_.kind)), " with tag ", control_.tag);
    switch (reason) {
      case Reason::kDeadline:
        MUO_FAIL("rank ", rank(), " waited ", group_.deadline.count(), " ms in ", where,
                 " for rank ", control_.peer,
                 ", which did not arrive; if it is only slow, raise MUO_PEER_DEADLINE_MS; if ranks "
                 "share a GPU, try --graph-branches 1");
      case Reason::kTwoAtOnce:
        MUO_FAIL("rank ", rank(), " runs two collectives at once, one of them ", where,
                 ": enqueue all on one stream, or order their streams by events");
      case Reason::kPeerLeft:
        throw PeerFailed(concat("rank ", control_.peer, " left ", where, ", or never entered it"));
      case Reason::kAborted:
      case Reason::kNone:
        break;
    }
    throw PeerFailed(concat("a peer failed while rank ", rank(), " waited for rank ", control_.peer,
                            " in ", where));
  }

 private:
  void enqueue(Stream& stream, const Collective& collective) override {
    check();
    const std::size_t turn = turn_++ % 2;
    std::vector<Collective>& posts = group_.posts[turn];
    std::string& mispaired = group_.mispaired[turn];
    posts[static_cast<std::size_t>(rank())] = collective;
    if (world() > 1) group_.rendezvous.arrive([&] { mispaired = mispairing(posts); }, kSite);
    if (!mispaired.empty()) throw Error(mispaired);
    peer::Work work = peer::share_work(rank(), posts);
    work.control = &control_;
    work.threads = group_.threads;
    work.deadline_ns =
        static_cast<std::uint64_t>(std::chrono::nanoseconds(group_.deadline).count());
    for (std::size_t p = 0; p < posts.size(); ++p)
      work.mailbox[p] = reinterpret_cast<Mailbox*>(group_.members[p].mailbox->data());
    peer::launch_collective(stream.native(), work);
  }

  PeerGroup& group_;
  Control& control_;
  std::size_t turn_ = 0;
};

class PeerCommunicators final : public CommunicatorGroup {
 public:
  PeerCommunicators(int world, Rendezvous& rendezvous, std::chrono::milliseconds deadline)
      : group_(world, rendezvous, deadline) {}

  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device) override {
    const int rank = device.rank();
    MUO_CHECK(0 <= rank && rank < group_.world, "rank ", rank, " of ", group_.world);
    PeerGroup::Member& mine = group_.members[static_cast<std::size_t>(rank)];
    mine.mailbox = device.allocate(sizeof(Mailbox), "the mailbox of the peer communicator");
    mine.control = device.allocate_pinned(sizeof(Control), "the words of the peer communicator");
    mine.gpu = current_gpu();
    std::atomic_ref(mine.words).store(reinterpret_cast<Control*>(mine.control->data()));
    group_.rendezvous.arrive({}, "communicator");
    std::vector<int> gpus;
    for (const PeerGroup::Member& member : group_.members)
      gpus.push_back(member.gpu);
    connect_peers(rank, gpus);
    if (group_.world > 1) cuda::reserve_for_collectives(mine.gpu, peer::kMaxCtas);
    // Barrier: no rank starts a kernel while a peer still prepares its GPU.
    group_.rendezvous.arrive({}, "communicator");
    auto communicator = std::make_unique<PeerCommunicator>(group_, rank);
    communicator->check();
    return communicator;
  }

  void abort() noexcept override { group_.abort(); }

 private:
  PeerGroup group_;
};

}  // namespace

std::unique_ptr<CommunicatorGroup> make_peer_communicators(const CommunicatorMembers& members,
                                                           std::chrono::milliseconds deadline) {
  MUO_CHECK(members.processes == nullptr, "--comm peer does not support several processes");
  if (members.world > peer::kMaxRanks)
    throw InputError(concat("--comm peer: ", members.world, " ranks, but at most ", peer::kMaxRanks,
                            "; use --comm nccl"));
  return std::make_unique<PeerCommunicators>(members.world, members.rendezvous, deadline);
}

}  // namespace muo
