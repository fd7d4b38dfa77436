#include <algorithm>

#include "kernels/embedding_impl.h"
#include "kernels/host/simd.h"

namespace muo::host {
namespace {

std::int64_t checked_token(std::int32_t token, std::int64_t i, std::int64_t vocab) {
  MUO_CHECK(0 <= token && token < vocab, "embedding: token ", token, " at position ", i,
            " is outside [0, ", vocab, ")");
  return token;
}

}  // namespace

void embedding(const EmbeddingArgs& args) {
  const std::int64_t n = args.tokens.shape[0];
  const std::int64_t v = args.table.shape[0];
  const std::int64_t c = args.table.shape[1];
  auto* y = args.y.as<float>();
  const auto* table = args.table.as<float>();
  const auto* tokens = args.tokens.as<std::int32_t>();
  for (std::int64_t i = 0; i < n; ++i)
    std::copy_n(table + checked_token(tokens[i], i, v) * c, c, y + i * c);
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  const std::int64_t n = args.tokens.shape[0];
  const std::int64_t v = args.dtable.shape[0];
  const std::int64_t c = args.dtable.shape[1];
  auto* dtable = args.dtable.as<float>();
  const auto* dy = args.dy.as<float>();
  const auto* tokens = args.tokens.as<std::int32_t>();
  if (!args.accumulate) std::fill_n(dtable, v * c, 0.0F);
  for (std::int64_t i = 0; i < n; ++i) {
    float* out = dtable + checked_token(tokens[i], i, v) * c;
    const float* in = dy + i * c;
    simd::for_lanes(c, [&](std::int64_t j, auto lanes) {
      simd::store(out + j, simd::load(out + j, lanes) + simd::load(in + j, lanes), lanes);
    });
  }
}

}  // namespace muo::host
