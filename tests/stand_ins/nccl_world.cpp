#include "stand_ins/nccl_world.h"

#include <algorithm>
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

}  // namespace

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

}  // namespace muo::nccl
