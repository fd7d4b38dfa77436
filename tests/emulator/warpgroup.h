#pragma once

// Emulations of the operations of runtime/cuda/warpgroup.h, which documents each. Everything
// happens as late as possible: copies arrive when a thread waits for their barrier, and products
// are computed when a thread waits for their group.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "emulator/ptx.h"
#include "runtime/tensor.h"

namespace muo::simt {

struct Barrier {
  std::uint8_t arrivals, missing, parity;
  std::int32_t bytes;  // announced, not yet arrived

  void end_phase_if_complete() {
    if (missing > 0 || bytes != 0) return;
    missing = arrivals;
    parity ^= 1;
  }
};
static_assert(sizeof(Barrier) == 8);
inline Barrier& barrier_at(const std::byte* at) {
  return *reinterpret_cast<Barrier*>(const_cast<std::byte*>(at));
}

inline void let_arrive(Barrier& barrier) {
  std::erase_if(Scheduler::current().tiles(), [&](const TileCopy& copy) {
    if (copy.barrier != &barrier) return false;
    copy.carry_out();
    barrier.bytes -= copy.bytes;
    return true;
  });
  barrier.end_phase_if_complete();
}

}  // namespace muo::simt

namespace muo::cuda {

inline void init_barrier(SharedAddress barrier, int arrivals) {
  simt::Barrier& of = simt::barrier_at(barrier);
  std::erase_if(simt::Scheduler::current().tiles(),
                [&](const auto& copy) { return copy.barrier == &of; });
  of = {static_cast<std::uint8_t>(arrivals), static_cast<std::uint8_t>(arrivals), 0, 0};
}
inline void show_barriers() {}
inline void arrive(SharedAddress barrier) {
  simt::Barrier& of = simt::barrier_at(barrier);
  if (of.missing-- == 0) simt::Scheduler::current().fail("more threads arrive than a barrier has");
  of.end_phase_if_complete();
}
inline void arrive_expecting(SharedAddress barrier, int bytes) {
  simt::barrier_at(barrier).bytes += bytes;
  arrive(barrier);
}
inline void wait_for_phase(SharedAddress barrier, int parity, MUO_SIMT_SITE) {
  simt::Barrier& of = simt::barrier_at(barrier);
  simt::let_arrive(of);
  while (of.parity == parity) {
    simt::Scheduler::current().pause(site);
    simt::let_arrive(of);
  }
}

struct alignas(128) TileMap {
  const BF16* data;
  std::int64_t sizes[4];
  std::byte unused[88];
};
static_assert(sizeof(TileMap) == 128);
inline TileMap tile_map(const Tensor& x) {
  return {x.as<BF16>(), {x.shape[0], x.shape[1], x.shape[2], x.shape[3]}, {}};
}

inline void copy_tile(SharedAddress to, const TileMap& from, int row, int t, int head, int column,
                      SharedAddress barrier) {
  constexpr int kTile = 64;
  if (reinterpret_cast<std::uintptr_t>(to) % 1024 != 0)
    simt::Scheduler::current().fail("a tile is not at a multiple of 1024");
  const auto carry_out = [=] {
    const auto& [rows, length, heads, width] = from.sizes;
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kTile; ++j) {
        const bool inside = t + i < length && column + j < width;
        const std::int64_t at = ((row * length + t + i) * heads + head) * width + column + j;
        const int offset = i * 128 + (j / 8 ^ i % 8) * 16 + j % 8 * 2;
        const BF16 element = inside ? from.data[at] : BF16{};
        std::memcpy(const_cast<std::byte*>(to) + offset, &element, sizeof element);
      }
  };
  simt::Scheduler::current().tiles().push_back(
      {&simt::barrier_at(barrier), kTile * kTile * 2, carry_out});
}
inline void copy_bytes(SharedAddress to, const void* from, int bytes, SharedAddress barrier) {
  const auto misaligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 != 0;
  };
  if (misaligned(to) || misaligned(from) || bytes % 16 != 0)
    simt::Scheduler::current().fail("a copy of bytes is misaligned");
  simt::Scheduler::current().tiles().push_back(
      {&simt::barrier_at(barrier), bytes,
       [=] { std::memcpy(const_cast<std::byte*>(to), from, static_cast<std::size_t>(bytes)); }});
}

struct SharedMatrix {
  const std::byte* at;
  int panel_bytes;

  SharedMatrix operator+(int bytes) const { return {at + bytes, panel_bytes}; }
  [[nodiscard]] float element(int row, int column) const {
    auto address =
        reinterpret_cast<std::uintptr_t>(at) +
        static_cast<std::uintptr_t>(column / 64 * panel_bytes + row * 128 + column % 64 * 2);
    address ^= (address >> 7 & 7) << 4;
    return to_f32(BF16{simt::get<std::uint16_t>(reinterpret_cast<const std::byte*>(address))});
  }
};
inline SharedMatrix along_rows(SharedAddress at) { return {at, 0}; }
inline SharedMatrix along_columns(SharedAddress at, int panel_bytes) { return {at, panel_bytes}; }

template <int... N>
void begin_products([[maybe_unused]] float (&... sums)[N][4]) {}
inline void commit_products() { simt::Scheduler::current().thread().products.emplace_back(); }

template <int kGroups, int... N>
void wait_for_products([[maybe_unused]] float (&... sums)[N][4]) {
  std::vector<std::function<void()>>& queue = simt::Scheduler::current().thread().products;
  auto groups = std::count(queue.begin(), queue.end(), nullptr);
  auto done = queue.begin();
  for (; groups > kGroups; ++done)
    if (*done)
      (*done)();
    else
      --groups;
  queue.erase(queue.begin(), done);
}

// Defers this lane's part of d = [d if kAdd] + a b, for rows lane / 4 and lane / 4 + 8 of a.
template <bool kAdd, int N, class Left, class Right>
void multiply_later(float (&d)[N][4], Left left, Right right) {
  simt::Scheduler::current().thread().products.push_back([&d, left, right, lane = simt::lane()] {
    for (int n = 0; n < N; ++n)
      for (int e = 0; e < 4; ++e) {
        float sum = kAdd ? d[n][e] : 0.0F;
        for (int k = 0; k < 16; ++k)
          sum += left(e / 2, k) * right(k, 8 * n + lane % 4 * 2 + e % 2);
        d[n][e] = sum;
      }
  });
}

template <bool kAdd = true>
void multiply_add_rows(float (&d)[8][4], SharedMatrix a, SharedMatrix b) {
  const int first = static_cast<int>(simt::Scheduler::current().thread().warp) % 4 * 16;
  const int row = first + simt::lane() / 4;
  multiply_later<kAdd>(
      d, [a, row](int half, int k) { return a.element(row + 8 * half, k); },
      [b](int k, int n) { return b.element(n, k); });
}
inline void multiply_rows(float (&d)[8][4], SharedMatrix a, SharedMatrix b) {
  multiply_add_rows<false>(d, a, b);
}

template <int N>
void multiply_add_columns(float (&d)[N][4], const std::uint32_t (&a)[4], SharedMatrix b,
                          MUO_SIMT_SITE) {
  struct Words {
    std::uint32_t word[4];
  };
  struct Rows {
    std::uint32_t pair[2][8];
  };
  const simt::Exchange exchange = [](simt::CudaThread* warp, unsigned lanes) {
    simt::for_lanes(lanes, [&](int i) {
      Rows rows{};
      for (int p = 0; p < 4; ++p) {
        const auto x = simt::get<Words>(warp[i / 4 * 4 + p].given);
        for (int n = 0; n < 4; ++n)
          rows.pair[n % 2][n / 2 * 4 + p] = x.word[n];
      }
      std::memcpy(warp[i].taken, &rows, sizeof rows);
    });
  };
  const auto rows = simt::collective<Rows>(~0U, Words{{a[0], a[1], a[2], a[3]}}, exchange, site);
  multiply_later<true>(
      d, [rows](int half, int k) { return simt::half_of(rows.pair[half][k / 2], k % 2); },
      [b](int k, int n) { return b.element(k, n); });
}

}  // namespace muo::cuda
