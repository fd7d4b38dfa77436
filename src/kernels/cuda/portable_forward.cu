#include <cmath>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/portable_tile.h"

namespace muo::cuda {

MUO_DYNAMIC_SHARED(float, portable_forward_shared)

// Here, as g++ 12 takes such a declaration in an unnamed namespace for one that is initialised.
static __device__ __forceinline__ float* shared_memory() {
  extern __shared__ __align__(16) float portable_forward_shared[];
  return portable_forward_shared;
}

namespace {

using namespace portable;  // NOLINT(google-build-using-namespace): the rest of this file

constexpr float kLn2 = 0.693147180559945309417F;

template <class T>
struct Forward {
  T* out;
  float* lse;
  const T* q;
  const T* k;
  const T* v;
  Geometry g;
};

// A block has 32 (D = 256: 16) queries of one head; keys, then values, of one tile after the other
// pass through one buffer. 4 D FLOPs per pair of the tiles that touch the band; bound by shared
// memory, at 0.4 (dots) and 0.6 (add) 16-byte loads per 4 FMAs.
template <class T, int D>
__global__ void __launch_bounds__(kThreads, 2) portable_forward_kernel(Forward<T> p) {
  using L = Layout<D>;
  float* const queries = shared_memory();
  float* const keys = queries + L::kRows;
  float* const pairs = keys + L::kRows;
  const Geometry& g = p.g;
  const std::int64_t first = std::int64_t{blockIdx.x} * L::kTile;
  const std::int64_t head = blockIdx.y, row = blockIdx.z;
  const T* k = p.k + g.kv_offset(row, head / g.group);
  const T* v = p.v + g.kv_offset(row, head / g.group);
  const Part<D> part;
  copy_rows<D>(queries, p.q + g.offset(row, head), g.stride(), first, g.t, g.h);

  // Finite, so that a row which has seen no key yet does not subtract infinities.
  float maximum[2] = {-3.0e38F, -3.0e38F};
  float sum[2] = {0.0F, 0.0F};
  float out[2][L::kGroups][4];
  clear(out);
  const float scale = g.scale * kLog2E;
  const std::int64_t end = min(g.t, first + L::kTile);
  for (std::int64_t key = max(std::int64_t{0}, first - g.window) / L::kTile * L::kTile; key < end;
       key += L::kTile) {
    __syncthreads();
    copy_rows<D>(keys, k, g.kv_stride(), key, g.t, g.h);
    __syncthreads();
    float scores[2][L::kColumns];
    part.dots(scores, queries, keys);
    for (int i = 0; i < 2; ++i) {
      float highest = maximum[i];
      for (int c = 0; c < L::kColumns; ++c) {
        float& s = scores[i][c];
        s = g.visible(first + part.row + i, key + part.column(c)) ? s * scale : -INFINITY;
        highest = fmaxf(highest, s);
      }
      highest = across_row<L::kAcross>(highest, [](float a, float b) { return fmaxf(a, b); });
      const float factor = exp2f(maximum[i] - highest);
      float total = 0.0F;
      for (float& s : scores[i]) {
        s = exp2f(s - highest);
        total += s;
      }
      sum[i] = fmaf(sum[i], factor, total);
      maximum[i] = highest;
      for (auto& four : out[i])
        for (float& x : four)
          x *= factor;
    }
    part.template put<T>(pairs, scores);
    __syncthreads();  // nobody needs the keys, and the pairs are there
    copy_rows<D>(keys, v, g.kv_stride(), key, g.t, g.h);
    __syncthreads();
    part.add(out, pairs, keys);
  }
  for (int i = 0; i < 2; ++i) {
    sum[i] = across_row<L::kAcross>(sum[i], [](float a, float b) { return a + b; });
    if (part.across == 0 && first + part.row + i < g.t)
      p.lse[(row * g.heads + head) * g.t + first + part.row + i] =
          fmaf(maximum[i], kLn2, logf(sum[i]));
  }
  part.write(p.out + g.offset(row, head), out, g.stride(), first, g.t, g.h, 1.0F / sum[0],
             1.0F / sum[1]);
}

}  // namespace

void portable_attention(NativeStream stream, const AttentionArgs& args) {
  const Shape& q = args.q.shape;
  dispatch(args.q.dtype, [&]<class T>() {
    with_head_size(q[3], [&]<int D>() {
      using L = Layout<D>;
      launch(portable_forward_kernel<T, D>,
             dim3(blocks_for(q[1], L::kTile), static_cast<unsigned>(q[2]),
                  static_cast<unsigned>(q[0])),
             kThreads, (2 * L::kRows + L::kTile * L::kPairs) * sizeof(float), stream,
             Forward<T>{.out = args.out.as<T>(),
                        .lse = args.lse.as<float>(),
                        .q = args.q.as<T>(),
                        .k = args.k.as<T>(),
                        .v = args.v.as<T>(),
                        .g = geometry_of(args)});
    });
  });
}

}  // namespace muo::cuda
