#include "kernels/embedding.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "kernels/dispatch.h"
#include "kernels/host/index_check.h"
#include "kernels/host/scratch.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

std::int64_t token_at(const Tensor& tokens, std::int64_t i, std::int64_t vocab) {
  return index_at(tokens, i, "embedding: token", 0, vocab);
}

void embedding(const EmbeddingArgs& args) {
  const std::int64_t n = args.tokens.shape[0], v = args.table.shape[0], c = args.table.shape[1];
  dispatch(args.table.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < n; ++i)
      std::copy_n(args.table.as<T>() + token_at(args.tokens, i, v) * c, c, args.y.as<T>() + i * c);
  });
}

// Adds the gradient of position i to the sums of its token's row.
template <class T>
void add_position(const EmbeddingBackwardArgs& args, std::int64_t i, float* row) {
  const std::int64_t c = args.dtable.shape[1];
  const std::int64_t groups = args.scale ? args.scale.shape[1] : 1;
  const std::int64_t width = c / groups;
  const auto* scale = data_or_null<float>(args.scale);
  for (std::int64_t k = 0; k < groups; ++k)
    simd::add_scaled(row + k * width, scale == nullptr ? 1.0F : scale[i * groups + k],
                     args.dy.as<T>() + i * c + k * width, row + k * width, width);
}

// For an fp32 dtable, in which the sums are accumulated.
template <class T>
void add_in_place(const EmbeddingBackwardArgs& args) {
  const std::int64_t n = args.tokens.shape[0], v = args.dtable.shape[0], c = args.dtable.shape[1];
  auto* dtable = args.dtable.as<float>();
  if (!args.accumulate) std::fill_n(dtable, v * c, 0.0F);
  for (std::int64_t i = 0; i < n; ++i)
    add_position<T>(args, i, dtable + token_at(args.tokens, i, v) * c);
}

// A counting sort. `groups` starts with v + 1 integers: the first v are, for each token, where its
// positions end in the list that follows. That list contains all positions, grouped by token.
void group_tokens(const GroupTokensArgs& args) {
  const std::int64_t n = args.tokens.shape[0], v = args.vocab;
  auto* ends = args.groups.as<std::int32_t>();
  std::int32_t* positions = ends + v + 1;
  std::fill_n(ends, v + 1, 0);
  for (std::int64_t i = 0; i < n; ++i)
    ++ends[token_at(args.tokens, i, v) + 1];
  std::partial_sum(ends, ends + v + 1, ends);  // now the beginning of each token's positions
  for (std::int64_t i = 0; i < n; ++i)
    positions[ends[token_at(args.tokens, i, v)]++] = static_cast<std::int32_t>(i);
}

std::span<const std::int32_t> positions_of(const EmbeddingBackwardArgs& args, std::int64_t token) {
  const auto* ends = args.groups.as<std::int32_t>();
  const std::int32_t begin = token == 0 ? 0 : ends[token - 1];
  return {ends + args.dtable.shape[0] + 1 + begin, static_cast<std::size_t>(ends[token] - begin)};
}

// For a bf16 dtable: each row is summed in scratch and stored once, because every store rounds.
template <class T>
void sum_row_by_row(const EmbeddingBackwardArgs& args) {
  const std::int64_t v = args.dtable.shape[0], c = args.dtable.shape[1];
  thread_local Scratch scratch;
  float* sum = scratch.floats(c);
  for (std::int64_t token = 0; token < v; ++token) {
    const std::span<const std::int32_t> of_token = positions_of(args, token);
    if (args.accumulate && of_token.empty()) continue;
    BF16* row = args.dtable.as<BF16>() + token * c;
    if (args.accumulate)
      simd::copy(sum, row, c);
    else
      std::fill_n(sum, c, 0.0F);
    for (const std::int32_t i : of_token)
      add_position<T>(args, i, sum);
    simd::copy(row, sum, c);
  }
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  dispatch(args.dy.dtype, [&]<class T>() {
    if (args.dtable.dtype == DType::kBF16)
      sum_row_by_row<T>(args);
    else
      add_in_place<T>(args);
  });
}

const KernelRegistration kRegistration(&embedding, &group_tokens, &embedding_backward);

}  // namespace
}  // namespace muo::host
