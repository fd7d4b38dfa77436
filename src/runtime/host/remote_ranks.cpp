#include "runtime/host/remote_ranks.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "runtime/rank_progress.h"

namespace muo {
namespace {

// Description of a collective call that processes exchange before its data.
struct Header {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  Tag tag = 0;
  int root = -1;
  // First rank of the process whose call differs from its first rank's; -1: none.
  int odd_rank = -1;
  std::int64_t count = 0;
  std::int64_t counts = 0;  // hash of the counts

  // Two headers' collectives pair if the calls do, except for hash collisions.
  [[nodiscard]] Collective collective() const {
    return {.kind = kind,
            .tag = tag,
            .root = root,
            .count = count,
            .dtype = dtype,
            .out_dtype = out_dtype,
            .counts = {&counts, 1}};
  }
};
static_assert(std::is_trivially_copyable_v<Header>);

std::int64_t hash_of(std::span<const std::int64_t> counts) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a, by words
  for (const std::int64_t count : counts)
    hash = (hash ^ static_cast<std::uint64_t>(count)) * 0x100000001B3;
  return static_cast<std::int64_t>(hash);
}

Header header_of(std::span<const Collective> local, int first_rank) {
  const Collective& first = local.front();
  const auto odd = std::find_if(local.begin(), local.end(),
                                [&](const Collective& each) { return !first.pairs_with(each); });
  return {.kind = first.kind,
          .dtype = first.dtype,
          .out_dtype = first.out_dtype,
          .tag = first.tag,
          .root = first.root,
          .odd_rank = odd == local.end() ? -1 : first_rank + static_cast<int>(odd - local.begin()),
          .count = first.count,
          .counts = hash_of(first.counts)};
}

// Elements of a rank's input that the given ranks need; contiguous, as the ranks are.
Share needed_by(RankRange ranks, int rank, int world, const Collective& collective) {
  const std::int64_t count = collective.count;
  const std::int64_t segment = count / world;
  const std::span<const std::int64_t> counts = collective.counts;
  const auto between = [](std::int64_t begin, std::int64_t end) {
    return Share{begin, end - begin};
  };
  const Share all = {0, counts.empty() ? count : counts[static_cast<std::size_t>(rank)]};
  switch (collective.kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return between(ranks.first * segment, ranks.end() * segment);
    case CollectiveKind::kAllGather:
      return {0, segment};
    case CollectiveKind::kAllGatherV:
      return all;
    case CollectiveKind::kAllReduce:
      return between(share_of(ranks.first, world, count).first,
                     share_of(ranks.end(), world, count).first);
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
      return ranks.contains(collective.root) ? all : Share{};
    case CollectiveKind::kBroadcast:
      return rank == collective.root ? all : Share{};
    case CollectiveKind::kScatter:
      return rank == collective.root
                 ? between(offset_of(ranks.first, counts), offset_of(ranks.end(), counts))
                 : Share{};
  }
  return {};
}

}  // namespace

// Buffers that are received into.
struct RemoteRanks::Memory {
  std::vector<Header> headers;  // by process; this process' own is sent
  std::array<char, 2000> text =
      {};  // of a mispaired collective, zero-terminated, possibly truncated
  std::unique_ptr<std::byte[]> pieces;
  std::int64_t size = 0;  // of `pieces`, in bytes

  void reserve(std::int64_t bytes) {
    if (bytes <= size) return;
    pieces.reset();
    pieces = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    size = bytes;
  }
  // Keeps the memory of an aborted exchange until the process ends, as the transport may still
  // write to it.
  static void keep_for_ever(std::unique_ptr<Memory> memory) {
    static std::mutex mutex;
    static auto& kept = *new std::vector<std::unique_ptr<Memory>>;  // never destroyed
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(memory));
  }
};

RemoteRanks::RemoteRanks(HostWorld world)
    : world_(std::move(world)), memory_(std::make_unique<Memory>()) {
  int next = 0;
  for (const RankRange& ranks : world_.processes) {
    MUO_CHECK(ranks.first == next && ranks.count >= 1, "ranks ", ranks.first, " to ",
              ranks.end() - 1, " follow rank ", next - 1);
    next = ranks.end();
  }
  MUO_CHECK(world_.exchange != nullptr, "no exchange for ", world_.processes.size(), " processes");
}
RemoteRanks::~RemoteRanks() = default;

// Calls visit(process, its ranks) for every other process.
template <class Visit>
void RemoteRanks::for_each_other(const Visit& visit) const {
  for (std::size_t p = 0; p < world_.processes.size(); ++p)
    if (static_cast<int>(p) != world_.process) visit(static_cast<int>(p), world_.processes[p]);
}

void RemoteRanks::run_exchange() {
  const RankProgress::Scope waiting(Activity::kPeers);
  try {
    world_.exchange->exchange(sends_, receives_);
  } catch (...) {
    Memory::keep_for_ever(std::exchange(memory_, std::make_unique<Memory>()));
    throw;
  }
}

void RemoteRanks::send_to_others(std::span<const std::byte> bytes) {
  sends_.clear();
  for_each_other([&](int process, RankRange) { sends_.push_back({process, bytes}); });
}

std::string RemoteRanks::mispairing(std::span<const Collective> posts) {
  const RankRange local = world_.local();
  const auto own = static_cast<std::size_t>(world_.process);
  memory_->headers.resize(world_.processes.size());
  const std::span<Header> headers = memory_->headers;
  headers[own] = header_of(
      posts.subspan(static_cast<std::size_t>(local.first), static_cast<std::size_t>(local.count)),
      local.first);
  send_to_others(std::as_bytes(headers.subspan(own, 1)));
  receives_.clear();
  for_each_other([&](int process, RankRange) {
    receives_.push_back(
        {process, std::as_writable_bytes(headers.subspan(static_cast<std::size_t>(process), 1))});
  });
  run_exchange();
  for (std::size_t p = 0; p < headers.size(); ++p) {
    const bool pairs = headers[0].collective().pairs_with(headers[p].collective());
    if (pairs && headers[p].odd_rank < 0) continue;
    const int odd = pairs ? headers[p].odd_rank : world_.processes[p].first;
    const std::string of_first = text_of(0, posts);
    return mispaired_text(of_first, odd, text_of(odd, posts));
  }
  return {};
}

// Text of a rank's call, in every process; a collective call of all processes.
std::string RemoteRanks::text_of(int rank, std::span<const Collective> posts) {
  auto& text = memory_->text;
  text.fill('\0');
  sends_.clear();
  receives_.clear();
  if (world_.local().contains(rank)) {
    const std::string own = posts[static_cast<std::size_t>(rank)].text();
    std::copy_n(own.begin(), std::min(own.size(), text.size() - 1), text.begin());
    send_to_others(std::as_bytes(std::span(text)));
  } else {
    for_each_other([&](int process, RankRange ranks) {
      if (ranks.contains(rank))
        receives_.push_back({process, std::as_writable_bytes(std::span(text))});
    });
  }
  run_exchange();
  return text.data();
}

// piece_of(rank, ranks): elements of the rank's tensor that `ranks`, those of one process, need.
template <class PieceOf>
void RemoteRanks::exchange(std::span<Collective> posts, std::span<std::int64_t> first,
                           Tensor Collective::*tensor, const PieceOf& piece_of) {
  const RankRange local = world_.local();
  sends_.clear();
  for_each_other([&](int process, RankRange ranks) {
    for (int rank = local.first; rank < local.end(); ++rank) {
      const Share piece = piece_of(rank, ranks);
      if (piece.count == 0) continue;
      const Tensor sent =
          (posts[static_cast<std::size_t>(rank)].*tensor).elements(piece.first, piece.count);
      sends_.push_back({process, {sent.data, static_cast<std::size_t>(sent.bytes())}});
    }
  });
  receive(posts, first, tensor, piece_of);
  run_exchange();
}

template <class PieceOf>
void RemoteRanks::receive(std::span<Collective> posts, std::span<std::int64_t> first,
                          Tensor Collective::*tensor, const PieceOf& piece_of) {
  constexpr std::int64_t kLine = 64;  // cache line, in bytes
  const RankRange local = world_.local();
  const DType dtype = posts[static_cast<std::size_t>(local.first)].dtype;
  const auto aligned_bytes = [&](const Share& piece) {
    return (piece.count * size_of(dtype) + kLine - 1) / kLine * kLine;
  };
  std::int64_t bytes = 0;
  for_each_other([&](int, RankRange ranks) {
    for (int rank = ranks.first; rank < ranks.end(); ++rank)
      bytes += aligned_bytes(piece_of(rank, local));
  });
  memory_->reserve(bytes);
  std::byte* next = memory_->pieces.get();
  receives_.clear();
  for_each_other([&](int process, RankRange ranks) {
    for (int rank = ranks.first; rank < ranks.end(); ++rank) {
      const Share piece = piece_of(rank, local);
      const auto r = static_cast<std::size_t>(rank);
      const Tensor received = {
          .data = next, .shape = {piece.count}, .dtype = dtype, .device = rank};
      first[r] = piece.first;
      posts[r].*tensor = received;
      if (piece.count > 0)
        receives_.push_back({process, {next, static_cast<std::size_t>(received.bytes())}});
      next += aligned_bytes(piece);
    }
  });
}

void RemoteRanks::exchange_inputs(std::span<Collective> posts, std::span<std::int64_t> first) {
  const Collective collective = posts[static_cast<std::size_t>(world_.local().first)];
  exchange(posts, first, &Collective::in, [&](int rank, RankRange ranks) {
    return needed_by(ranks, rank, world_.ranks(), collective);
  });
}

void RemoteRanks::exchange_sums(std::span<Collective> posts, std::span<std::int64_t> first) {
  const std::int64_t count = posts[static_cast<std::size_t>(world_.local().first)].count;
  exchange(posts, first, &Collective::out,
           [&](int rank, RankRange) { return share_of(rank, world_.ranks(), count); });
}

}  // namespace muo
