#include "runtime/cuda/peer_communicator.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/comm/collective.h"
#include "runtime/comm/peer_work.h"
#include "runtime/cuda/peer_kernels.h"

namespace muo {
namespace {

using peer::Control;
using peer::Mailbox;
using peer::Reason;

constexpr std::string_view kSite = "collective";

std::uint32_t load(const std::uint32_t& word) {
  return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_acquire);
}

std::chrono::milliseconds deadline_from_environment(std::chrono::milliseconds otherwise) {
  const char* text = std::getenv("MUO_PEER_DEADLINE_MS");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) return otherwise;
  const std::string_view number = text;
  std::int64_t ms = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ms);
  if (error != std::errc{} || end != number.data() + number.size() || ms < 1)
    throw InputError(concat("MUO_PEER_DEADLINE_MS is a number of milliseconds, not '", text, "'"));
  return std::chrono::milliseconds(ms);
}

// What all ranks share. Their words live here, as a peer may still write to those of a rank that is
// gone.
struct PeerGroup {
  struct Member {
    std::unique_ptr<Buffer> mailbox, control;
    int gpu = -1;
    Control* words = nullptr;
  };

  PeerGroup(int world_, Rendezvous& meeting, PeerPlatform platform_)
      : world(world_),
        rendezvous(meeting),
        platform(std::move(platform_)),
        members(static_cast<std::size_t>(world_)) {
    for (auto& of_turn : posts)
      of_turn.resize(members.size());
    platform.deadline = deadline_from_environment(platform.deadline);
  }

  void abort() noexcept {
    aborted = true;
    for (Member& member : members)
      if (Control* words = std::atomic_ref(member.words).load())
        std::atomic_ref(words->abort).store(1, std::memory_order_release);
  }

  const int world;
  Rendezvous& rendezvous;
  PeerPlatform platform;
  std::atomic<bool> aborted = false;
  std::vector<Member> members;  // by rank
  // Two in turn: a rank writes its next post while slow ones read this one. It cannot be two ahead,
  // as they have not come to the meeting in between.
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
        MUO_FAIL(
            "rank ", rank(), " waited ", group_.platform.deadline.count(), " ms in ", where,
            " for rank ", control_.peer,
            ", which did not come; if it is only slow, set MUO_PEER_DEADLINE_MS higher; if ranks "
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
    work.threads = group_.platform.threads;
    work.deadline_ns =
        static_cast<std::uint64_t>(std::chrono::nanoseconds(group_.platform.deadline).count());
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
  PeerCommunicators(int world, Rendezvous& rendezvous, PeerPlatform platform)
      : group_(world, rendezvous, std::move(platform)) {}

  [[nodiscard]] std::unique_ptr<Communicator> join(Device& device) override {
    const int rank = device.rank();
    MUO_CHECK(0 <= rank && rank < group_.world, "rank ", rank, " of ", group_.world);
    PeerGroup::Member& mine = group_.members[static_cast<std::size_t>(rank)];
    mine.mailbox = device.allocate(sizeof(Mailbox), "the mailbox of the peer communicator");
    mine.control = device.allocate_pinned(sizeof(Control), "the words of the peer communicator");
    mine.gpu = group_.platform.gpu();
    std::atomic_ref(mine.words).store(reinterpret_cast<Control*>(mine.control->data()));
    group_.rendezvous.arrive({}, "communicator");
    std::vector<int> gpus;
    for (const PeerGroup::Member& member : group_.members)
      gpus.push_back(member.gpu);
    group_.platform.connect(rank, gpus);
    // Nobody starts a kernel while a peer still prepares its GPU.
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

std::unique_ptr<CommunicatorGroup> make_peer_communicators(int world, Rendezvous& rendezvous,
                                                           PeerPlatform platform) {
  if (world > peer::kMostRanks)
    throw InputError(
        concat("--comm peer: ", world, " ranks, at most ", peer::kMostRanks, "; use --comm nccl"));
  return std::make_unique<PeerCommunicators>(world, rendezvous, std::move(platform));
}

}  // namespace muo
