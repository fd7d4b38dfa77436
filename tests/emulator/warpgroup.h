#pragma once

// Emulations of the operations of runtime/cuda/warpgroup.h, which documents each; async_proxy.h has
// what they share.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/async_proxy.h"
#include "emulator/ptx.h"
#include "runtime/tensor.h"

namespace muo::simt {

inline AsyncProxy& async() { return Scheduler::current().async(); }
inline Barrier& barrier_at(const std::byte* at) {
  return *reinterpret_cast<Barrier*>(const_cast<std::byte*>(at));
}

}  // namespace muo::simt

namespace muo::cuda {

inline void init_barrier(SharedAddress barrier, int arrivals) {
  simt::async().init(simt::barrier_at(barrier), arrivals);
}
inline void show_barriers() { simt::async().fence(); }
inline void arrive(SharedAddress barrier) { simt::async().arrive(simt::barrier_at(barrier), 0); }
inline void arrive_expecting(SharedAddress barrier, int bytes) {
  simt::async().arrive(simt::barrier_at(barrier), bytes);
}
inline void wait_for_phase(SharedAddress barrier, int parity, MUO_SIMT_SITE) {
  for (bool again = false; !simt::async().has_ended(simt::barrier_at(barrier), parity);
       again = true)
    simt::Scheduler::current().pause(again ? simt::Turn::kStuck : simt::Turn::kRan, site);
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
  const auto& [rows, length, heads, width] = from.sizes;
  const BF16* const first = from.data + ((row * length + t) * heads + head) * width + column;
  simt::async().start({.barrier = &simt::barrier_at(barrier),
                       .to = const_cast<std::byte*>(to),
                       .from = reinterpret_cast<const std::byte*>(first),
                       .bytes = kTile * kTile * 2,
                       .stride = heads * width * 2,
                       .rows = static_cast<int>(length - t),
                       .row_bytes = static_cast<int>(width - column) * 2});
}
inline void copy_bytes(SharedAddress to, const void* from, int bytes, SharedAddress barrier) {
  const auto misaligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 != 0;
  };
  if (misaligned(to) || misaligned(from) || bytes % 16 != 0)
    simt::Scheduler::current().fail("a copy of bytes is misaligned");
  simt::async().start({.barrier = &simt::barrier_at(barrier),
                       .to = const_cast<std::byte*>(to),
                       .from = static_cast<const std::byte*>(from),
                       .bytes = bytes,
                       .stride = 0,
                       .rows = 0,
                       .row_bytes = 0});
}

using simt::SharedMatrix;
inline SharedMatrix along_rows(SharedAddress at) { return {at, 0}; }
inline SharedMatrix along_columns(SharedAddress at, int panel_bytes) { return {at, panel_bytes}; }

// These are warp collectives, .sync.aligned.
template <int... N>
void begin_products(float (&... sums)[N][4]) {
  simt::async().begin_products();
  __syncwarp();
  (simt::async().begin_sums(sums, N), ...);
}
inline void commit_products() {
  simt::async().commit_products();
  __syncwarp();
}
template <int kGroups, int... N>
void wait_for_products(float (&... sums)[N][4]) {
  simt::async().wait_for_products(kGroups);
  (simt::async().take_sums(sums), ...);
  __syncwarp();
}

template <bool kAdd = true>
void multiply_add_rows(float (&d)[8][4], SharedMatrix a, SharedMatrix b) {
  simt::async().multiply(d, 8,
                         {.adds = kAdd, .left_is_shared = true, .left = a, .rows = {}, .right = b});
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
  simt::Product product{.adds = true, .left_is_shared = false, .left = {}, .rows = {}, .right = b};
  std::memcpy(product.rows, &rows, sizeof rows);
  simt::async().multiply(d, N, product);
}

}  // namespace muo::cuda
