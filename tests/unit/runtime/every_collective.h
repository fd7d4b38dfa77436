#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/philox.h"
#include "runtime/comm/collective.h"
#include "runtime/device_group.h"
#include "support/tensors.h"

namespace muo::test {

using Bytes = std::vector<std::byte>;

// Values of such different magnitudes that a sum in another order has other bits.
inline HostTensor collective_input(int rank, std::int64_t size, DType dtype) {
  HostTensor out({size}, dtype, rank);
  const std::int64_t r = rank;
  const CounterRandom random(static_cast<std::uint64_t>(rank), "process collective");
  for (std::int64_t i = 0; i < size; ++i) {
    const float uniform = random.uniform(static_cast<std::uint64_t>(i)) - 0.5F;
    const float value = std::ldexp(uniform, static_cast<int>((i + 3 * r) % 11));
    const Tensor& t = out.tensor();
    switch (dtype) {
      case DType::kF32:
        t.as<float>()[i] = value;
        break;
      case DType::kBF16:
        t.as<BF16>()[i] = to_bf16(value);
        break;
      case DType::kF64:
        t.as<double>()[i] = static_cast<double>(value) / 3;
        break;
      case DType::kI32:
        t.as<std::int32_t>()[i] = static_cast<std::int32_t>(1e6F * value);
        break;
      case DType::kI64:
        t.as<std::int64_t>()[i] = static_cast<std::int64_t>(1e15F * value);
        break;
      default:
        t.data[i] = static_cast<std::byte>(37 * r + 11 * i);
    }
  }
  return out;
}

inline void append(Bytes& to, const Tensor& tensor) {
  to.insert(to.end(), tensor.data, tensor.data + tensor.bytes());
}

// Runs every collective once; returns all results on this rank.
inline Bytes every_collective(RankContext& rank, std::int64_t size, DType dtype) {
  Communicator& c = rank.communicator;
  const int world = c.world();
  Bytes results;
  Tag tag = 0;
  const HostTensor part = collective_input(rank.rank, size, dtype);
  const HostTensor whole = collective_input(rank.rank, size * world, dtype);
  const HostTensor gathered({size * world}, dtype);
  const HostTensor shard({size}, dtype);
  c.all_gather(rank.comm, ++tag, gathered, part);
  append(results, gathered);
  c.all_to_all(rank.comm, ++tag, gathered, whole);
  append(results, gathered);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r)
    counts[static_cast<std::size_t>(r)] = r % 3 == 1 ? 0 : size + r;
  const std::int64_t sum = offset_of(world, counts);
  const HostTensor mine =
      collective_input(rank.rank, counts[static_cast<std::size_t>(rank.rank)], dtype);
  const HostTensor all({sum}, dtype);
  c.all_gather_v(rank.comm, ++tag, all, mine, counts);
  append(results, all);
  for (int root = 0; root < world; ++root) {
    const bool is_root = rank.rank == root;
    const HostTensor sent = collective_input(rank.rank, size, dtype);
    c.broadcast(rank.comm, ++tag, sent, root);
    append(results, sent);
    const HostTensor at_root({sum}, dtype);
    const Tensor full = is_root ? at_root.tensor() : Tensor{};
    c.gather(rank.comm, ++tag, full, mine, counts, root);
    append(results, at_root);
    const HostTensor back(mine.tensor().shape, dtype);
    c.scatter(rank.comm, ++tag, back, full, counts, root);
    append(results, back);
    if (dtype == DType::kBytes) continue;
    const HostTensor total({size}, dtype);
    c.reduce(rank.comm, ++tag, is_root ? total.tensor() : Tensor{}, part, root);
    append(results, total);
  }
  if (dtype != DType::kBytes) {
    c.reduce_scatter(rank.comm, ++tag, shard, whole);
    append(results, shard);
    c.all_reduce(rank.comm, ++tag, shard, part);
    append(results, shard);
    c.all_reduce(rank.comm, ++tag, part, part);
    append(results, part);
  }
  if (dtype == DType::kBF16) {
    const HostTensor wide({size});
    c.reduce_scatter(rank.comm, ++tag, wide, whole);
    append(results, wide);
    c.reduce(rank.comm, ++tag, rank.rank == 0 ? wide.tensor() : Tensor{}, part, 0);
    append(results, wide);
  }
  const std::int64_t sent = c.bytes_sent();
  append(results, host_struct(sent));
  return results;
}

}  // namespace muo::test
