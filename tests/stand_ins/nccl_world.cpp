#include "stand_ins/nccl_world.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <type_traits>

#include "base/dtype.h"

namespace muo::nccl {

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

bool pairs_with(const Work& a, const Work& b) {
  return a.call == b.call && a.count == b.count && a.type == b.type && a.peer == b.peer;
}

// Sleeps while `word`, which any process may change, equals `seen`. Bounded, as a process may be
// killed between the change and waking the others.
void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  static_assert(sizeof word == sizeof seen && std::atomic<std::uint32_t>::is_always_lock_free);
  const std::timespec patience{.tv_sec = 0, .tv_nsec = 50'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &patience, nullptr, 0);
}
void wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace

void World::changed() {
  ++board().changes;
  wake_all(board().changes);
}

template <class Ready>
bool World::wait(Lock& lock, const Ready& ready) {
  while (!ready()) {
    if (aborted_) return false;
    const std::uint32_t seen = board().changes;
    lock.unlock();
    sleep_while(board().changes, seen);
    lock.lock();
  }
  return true;
}

Result World::join(int size, int rank) {
  // Allows any process to read this one's memory; without Yama this user's processes may anyway.
  static_cast<void>(prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0));
  Lock lock(board().mutex);
  if (size < 1 || size > static_cast<int>(Board::kMaxRanks) || rank < 0 || rank >= size)
    return Result::kInvalidArgument;
  pid_t& process = board().processes[rank];
  if ((board().size != 0 && board().size != size) || process != 0) return Result::kInvalidUsage;
  board().size = size;
  process = getpid();
  if (!arrive(lock)) return Result::kRemoteError;
  board_->close_descriptor();
  return Result::kSuccess;
}

bool World::arrive() {
  Lock lock(board().mutex);
  return arrive(lock);
}

bool World::arrive(Lock& lock) {
  if (aborted_) return false;
  const std::uint64_t mine = board().generation;
  if (++board().arrived < size()) return wait(lock, [&] { return board().generation != mine; });
  board().arrived = 0;
  ++board().generation;
  changed();
  return true;
}

void World::abort() {
  const Lock lock(board().mutex);
  aborted_ = true;
  changed();
}

bool World::wait_for_abort() {
  Lock lock(board().mutex);
  return wait(lock, [] { return false; });
}

const std::byte* World::read(int rank, const std::byte* from, std::int64_t bytes,
                             std::vector<std::byte>& copy) const {
  const pid_t process = board().processes[rank];
  if (process == getpid()) return from;
  copy.resize(static_cast<std::size_t>(bytes));
  const iovec to{.iov_base = copy.data(), .iov_len = copy.size()};
  const iovec of{.iov_base = const_cast<std::byte*>(from), .iov_len = copy.size()};
  if (process_vm_readv(process, &to, 1, &of, 1, 0) == bytes) return copy.data();
  if (errno == EPERM || errno == ENOSYS)
    std::fprintf(stderr, "NCCL's stand-in cannot read the memory of process %d: %s\n", process,
                 std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
  return nullptr;
}

// Sums segment `segment` in the order of the ring, which ends at the segment's rank.
bool World::ring_sum(const Work& mine, std::int64_t first, std::int64_t n, int segment,
                     std::byte* out) const {
  const std::int64_t size_of = size_of_type(mine.type);
  std::vector<std::byte> sum(static_cast<std::size_t>(n * size_of)), copy;
  for (int k = 1; k <= size(); ++k) {
    const int rank = (segment + k) % size();
    const std::byte* in = read(rank, board().posts[rank].in + first * size_of, n * size_of, copy);
    if (in == nullptr) return false;
    add(mine.type, sum.data(), in, n, k == 1);
  }
  std::copy(sum.begin(), sum.end(), out);
  return true;
}

// Computes the rank's result of a collective; false if a process is gone.
bool World::move(int rank, const Work& mine, std::vector<std::byte>& result) const {
  const std::int64_t size_of = size_of_type(mine.type);
  const auto bytes = [&](std::int64_t n) { return static_cast<std::size_t>(n * size_of); };
  std::vector<std::byte> copy;
  const auto append = [&](int from) {
    const std::byte* in = read(from, board().posts[from].in, mine.count * size_of, copy);
    if (in != nullptr) result.insert(result.end(), in, in + mine.count * size_of);
    return in != nullptr;
  };
  switch (mine.call) {
    case Call::kReduceScatter:
      result.resize(bytes(mine.count));
      return ring_sum(mine, rank * mine.count, mine.count, rank, result.data());
    case Call::kReduce:
    case Call::kAllReduce:
      if (mine.call == Call::kReduce && rank != mine.peer) return true;
      result.resize(bytes(mine.count));
      for (int s = 0; s < size(); ++s) {
        const std::int64_t first = mine.count * s / size();
        const std::int64_t last = mine.count * (s + 1) / size();
        if (!ring_sum(mine, first, last - first, s, result.data() + first * size_of)) return false;
      }
      return true;
    case Call::kBroadcast:
      return append(mine.peer);
    case Call::kAllGather:
      for (int from = 0; from < size(); ++from)
        if (!append(from)) return false;
      return true;
    case Call::kSend:
    case Call::kReceive:
      break;
  }
  return true;
}

// One collective of all ranks. The result is first written to separate memory, as outputs may alias
// inputs.
bool World::run_collective(int rank, const Work& mine) {
  board().posts[rank] = mine;
  if (!arrive()) return false;
  for (int r = 0; r < size(); ++r)
    if (!pairs_with(mine, board().posts[r])) board().mispaired = true;
  if (!arrive() || mispaired()) return false;  // all have compared
  std::vector<std::byte> result;
  if (!move(rank, mine, result)) return wait_for_abort();
  if (!arrive()) return false;  // all have read
  std::copy(result.begin(), result.end(), mine.out);
  return true;
}

bool World::send(int rank, const Work& mine) {
  const Lock lock(board().mutex);
  Board::Mail& mail = board().mail[rank][mine.peer];
  if (mail.sent - mail.taken == Board::kMaxMessages) board().mispaired = true;
  if (mispaired()) return false;
  mail.messages[mail.sent++ % Board::kMaxMessages] = {
      .data = mine.in, .bytes = mine.count * size_of_type(mine.type)};
  changed();
  return true;
}

bool World::receive(int rank, const Work& mine) {
  Lock lock(board().mutex);
  Board::Mail& mail = board().mail[mine.peer][rank];
  if (!wait(lock, [&] { return mail.taken < mail.sent; })) return false;
  const Board::Message message = mail.messages[mail.taken % Board::kMaxMessages];
  if (message.bytes == mine.count * size_of_type(mine.type)) {
    std::vector<std::byte> copy;
    const std::byte* data = read(mine.peer, message.data, message.bytes, copy);
    if (data == nullptr) return wait(lock, [] { return false; });
    std::copy_n(data, message.bytes, mine.out);
  } else {
    board().mispaired = true;
  }
  ++mail.taken;
  changed();
  return true;
}

void World::run(int rank, const std::vector<Work>& group) {
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(size()));  // last message to each rank
  for (const Work& work : group) {
    if (work.call != Call::kSend) continue;
    if (!send(rank, work)) return;
    const Lock lock(board().mutex);
    sent[static_cast<std::size_t>(work.peer)] = board().mail[rank][work.peer].sent;
  }
  for (const Work& work : group) {
    if (work.call == Call::kSend) continue;
    const bool done =
        work.call == Call::kReceive ? receive(rank, work) : run_collective(rank, work);
    if (!done) return;
  }
  Lock lock(board().mutex);
  wait(lock, [&] {
    for (std::size_t to = 0; to < sent.size(); ++to)
      if (board().mail[rank][to].taken < sent[to]) return false;
    return true;
  });
}

}  // namespace muo::nccl
