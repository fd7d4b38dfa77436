#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/host/dispatch.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/host/tokens.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

template <class T>
void embedding_of(const EmbeddingArgs& args) {
  const std::int64_t n = args.tokens.shape[0];
  const std::int64_t v = args.table.shape[0];
  const std::int64_t c = args.table.shape[1];
  for (std::int64_t i = 0; i < n; ++i)
    std::copy_n(args.table.as<T>() + token_at(args.tokens, i, v) * c, c, args.y.as<T>() + i * c);
}

template <class T>
void embedding_backward_of(const EmbeddingBackwardArgs& args) {
  const std::int64_t n = args.tokens.shape[0];
  const std::int64_t v = args.dtable.shape[0];
  const std::int64_t c = args.dtable.shape[1];
  const std::int64_t groups = args.scale ? args.scale.shape[1] : 1;
  const std::int64_t width = c / groups;
  auto* dtable = args.dtable.as<float>();
  if (!args.accumulate) std::fill_n(dtable, v * c, 0.0F);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < groups; ++k) {
      float* out = dtable + token_at(args.tokens, i, v) * c + k * width;
      const T* in = args.dy.as<T>() + i * c + k * width;
      const simd::F32 scale =
          simd::broadcast(args.scale ? args.scale.as<float>()[i * groups + k] : 1.0F);
      simd::for_lanes(width, [&](std::int64_t j, auto lanes) {
        simd::store(out + j,
                    simd::fma(scale, simd::load(in + j, lanes), simd::load(out + j, lanes)), lanes);
      });
    }
}

void embedding(const EmbeddingArgs& args) {
  dispatch(args.table.dtype, [&]<class T>() { embedding_of<T>(args); });
}
void embedding_backward(const EmbeddingBackwardArgs& args) {
  dispatch(args.dy.dtype, [&]<class T>() { embedding_backward_of<T>(args); });
}

const KernelRegistration<EmbeddingArgs> kEmbedding(&embedding);
const KernelRegistration<EmbeddingBackwardArgs> kEmbeddingBackward(&embedding_backward);

}  // namespace
}  // namespace muo::host
