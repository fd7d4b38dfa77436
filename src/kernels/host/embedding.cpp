#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/host/index_check.h"
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

void embedding_backward(const EmbeddingBackwardArgs& args) {
  const std::int64_t n = args.tokens.shape[0], v = args.dtable.shape[0], c = args.dtable.shape[1];
  const std::int64_t groups = args.scale ? args.scale.shape[1] : 1;
  const std::int64_t width = c / groups;
  auto* dtable = args.dtable.as<float>();
  const auto* scale = data_or_null<float>(args.scale);
  if (!args.accumulate) std::fill_n(dtable, v * c, 0.0F);
  dispatch(args.dy.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < n; ++i) {
      float* row = dtable + token_at(args.tokens, i, v) * c;
      for (std::int64_t k = 0; k < groups; ++k)
        simd::add_scaled(row + k * width, scale == nullptr ? 1.0F : scale[i * groups + k],
                         args.dy.as<T>() + i * c + k * width, row + k * width, width);
    }
  });
}

const KernelRegistration kRegistration(&embedding, &embedding_backward);

}  // namespace
}  // namespace muo::host
