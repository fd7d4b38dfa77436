#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/kernel_cases.h"
#include "kernels/activation.h"
#include "kernels/argmax.h"
#include "kernels/cross_entropy.h"
#include "kernels/decode_attention.h"
#include "kernels/documents.h"
#include "kernels/embedding.h"
#include "kernels/gate.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rotary.h"

// The operations of the model except its products.
namespace muo::bench {

inline void add_activation_cases(std::vector<MakeCase>& out, DType dtype) {
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor x = make.normal({s.n(), 4 * s.c()}, dtype), y = make.zeros(x.shape, dtype);
    return Case{.name = "relu_squared", .bytes = bytes_of({x, y}), .run = [=](Stream& stream) {
                  relu_squared(stream, {.y = y, .x = x});
                }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor y = make.squares({s.n(), 4 * s.c()}, dtype), dy = make.normal(y.shape, dtype);
    return Case{.name = "relu_squared_backward",
                .bytes = bytes_of({y, dy, dy}),
                .run = [=](Stream& stream) {
                  relu_squared_backward(stream, {.dx = dy, .dy = dy, .y = y});
                }};
  });
}

inline void add_norm_cases(std::vector<MakeCase>& out, DType dtype) {
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor x = make.normal({s.n(), s.c()}, dtype), y = make.zeros(x.shape, dtype),
                 rstd = make.zeros({s.n()}, DType::kF32);
    return Case{.name = "rms_norm", .bytes = bytes_of({x, y, rstd}), .run = [=](Stream& stream) {
                  rms_norm(stream, {.y = y, .rstd = rstd, .x = x});
                }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor y = make.normal({s.n(), s.c()}, dtype), dy = make.normal(y.shape, dtype),
                 dx = make.normal(y.shape, dtype), rstd = make.normal({s.n()}, DType::kF32);
    return Case{.name = "rms_norm_backward",
                .bytes = bytes_of({y, dy, dx, dx, rstd}),
                .run = [=](Stream& stream) {
                  rms_norm_backward(stream,
                                    {.dx = dx, .dy = dy, .y = y, .rstd = rstd, .accumulate = true});
                }};
  });
}

inline void add_residual_cases(std::vector<MakeCase>& out, DType dtype) {
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Shape shape{s.n(), s.c()};
    const Tensor x = make.normal(shape, dtype), z = make.normal(shape, dtype),
                 y = make.zeros(shape, dtype), mixed = make.zeros(shape, dtype),
                 rstd = make.zeros({s.n()}, DType::kF32), alpha = make.normal({1}, DType::kF32);
    return Case{
        .name = "mix_norm", .bytes = bytes_of({x, z, y, mixed, rstd}), .run = [=](Stream& stream) {
          mix_norm(stream, {.y = y,
                            .rstd = rstd,
                            .mixed = mixed,
                            .x = x,
                            .z = z,
                            .alpha = alpha,
                            .beta = alpha});
        }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Shape shape{s.n(), s.c()};
    const Tensor dx = make.normal(shape, dtype), dz = make.normal(shape, dtype),
                 dy = make.normal(shape, dtype), x = make.normal(shape, dtype),
                 z = make.normal(shape, dtype), rstd = make.normal({s.n()}, DType::kF32),
                 alpha = make.normal({1}, DType::kF32), dalpha = make.zeros({1}, DType::kF32),
                 dbeta = make.zeros({1}, DType::kF32);
    return Case{.name = "mix_norm_backward",
                .bytes = bytes_of({dx, dx, dz, dz, dy, x, z, rstd}),
                .run = [=](Stream& stream) {
                  mix_norm_backward(stream, {.dx = dx,
                                             .dz = dz,
                                             .dy = dy,
                                             .rstd = rstd,
                                             .x = x,
                                             .z = z,
                                             .alpha = alpha,
                                             .beta = alpha,
                                             .dalpha = dalpha,
                                             .dbeta = dbeta,
                                             .add_dx = true,
                                             .add_dz = true});
                }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor y = make.normal({s.n(), s.c()}, dtype), x = make.normal(y.shape, dtype);
    return Case{.name = "add", .bytes = bytes_of({y, y, x}), .run = [=](Stream& stream) {
                  add(stream, {.y = y, .x = x});
                }};
  });
}

inline void add_rotary_cases(std::vector<MakeCase>& out, DType dtype) {
  const auto tables = [dtype](Tensors& make, const Sizes& s) {
    return std::pair{make.normal({s.t, s.h / 2}, dtype), make.normal({s.t, s.h / 2}, dtype)};
  };
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const auto [cos, sin] = tables(make, s);
    return Case{.name = "rotary_table",
                .bytes = bytes_of({cos, sin}),
                .run = [cos = cos, sin = sin](Stream& stream) {
                  rotary_table(stream, {.cos = cos, .sin = sin});
                }};
  });
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const auto [cos, sin] = tables(make, s);
    const Tensor x = make.normal({s.b, s.t, s.heads, s.h}, dtype),
                 rstd = make.zeros({s.b, s.t, s.heads}, DType::kF32);
    return Case{.name = "rotary_norm",
                .bytes = bytes_of({x, x, rstd}),
                .run = [=, cos = cos, sin = sin](Stream& stream) {
                  rotary_norm(stream, {.x = x, .rstd = rstd, .cos = cos, .sin = sin});
                }};
  });
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const auto [cos, sin] = tables(make, s);
    const Tensor dx = make.normal({s.b, s.t, s.heads, s.h}, dtype),
                 y = make.normal(dx.shape, dtype),
                 rstd = make.normal({s.b, s.t, s.heads}, DType::kF32);
    return Case{.name = "rotary_norm_backward",
                .bytes = bytes_of({dx, dx, y, rstd}),
                .run = [=, cos = cos, sin = sin](Stream& stream) {
                  rotary_norm_backward(stream,
                                       {.dx = dx, .y = y, .rstd = rstd, .cos = cos, .sin = sin});
                }};
  });
}

inline void add_embedding_cases(std::vector<MakeCase>& out, DType dtype) {
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor table = make.normal({s.vocab, s.c()}, dtype),
                 y = make.zeros({s.n(), s.c()}, dtype), tokens = make.tokens(s.n(), s.vocab);
    return Case{.name = "embedding", .bytes = bytes_of({y, y, tokens}), .run = [=](Stream& stream) {
                  embedding(stream, {.y = y, .table = table, .tokens = tokens});
                }};
  });
  out.emplace_back([](Tensors& make, const Sizes& s) {
    const Tensor tokens = make.tokens(s.n(), s.vocab), groups = make.token_groups(tokens, s.vocab);
    return Case{
        .name = "group_tokens", .bytes = bytes_of({tokens, groups}), .run = [=](Stream& stream) {
          group_tokens(stream, {.groups = groups, .tokens = tokens, .vocab = s.vocab});
        }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor dtable = make.zeros({s.vocab, s.c()}, DType::kF32),
                 dy = make.normal({s.n(), s.c()}, dtype), tokens = make.tokens(s.n(), s.vocab);
    const Tensor groups = make.token_groups(tokens, s.vocab);
    return Case{.name = "embedding_backward",
                .bytes = bytes_of({dtable, dy, groups}),
                .run = [=](Stream& stream) {
                  embedding_backward(
                      stream, {.dtable = dtable, .dy = dy, .tokens = tokens, .groups = groups});
                }};
  });
}

inline constexpr std::int64_t kGateChannels = 12;

inline void add_gate_cases(std::vector<MakeCase>& out, DType dtype) {
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const std::int64_t width = s.kv_heads * s.h;
    const Tensor v = make.normal({s.n(), width}, dtype), x = make.normal({s.n(), s.c()}, dtype),
                 gates = make.zeros({s.n(), s.kv_heads}, DType::kF32),
                 weight = make.normal({s.kv_heads, kGateChannels}, dtype),
                 table = make.normal({s.vocab, width}, dtype), tokens = make.tokens(s.n(), s.vocab);
    return Case{
        .name = "value_embedding",
        .bytes = bytes_of({v, v, v, gates, tokens}),
        .run = [=](Stream& stream) {
          value_embedding(
              stream,
              {.v = v, .gates = gates, .x = x, .weight = weight, .table = table, .tokens = tokens});
        }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const std::int64_t width = s.kv_heads * s.h;
    const Tensor dv = make.normal({s.n(), width}, dtype), x = make.normal({s.n(), s.c()}, dtype),
                 dx = make.normal(x.shape, dtype),
                 gates = make.normal({s.n(), s.kv_heads}, DType::kF32),
                 weight = make.normal({s.kv_heads, kGateChannels}, dtype),
                 dweight = make.zeros(weight.shape, DType::kF32),
                 table = make.normal({s.vocab, width}, dtype), tokens = make.tokens(s.n(), s.vocab);
    return Case{.name = "value_embedding_backward",
                .bytes = bytes_of({dv, dv, gates, tokens}),
                .run = [=](Stream& stream) {
                  value_embedding_backward(stream, {.dx = dx,
                                                    .dweight = dweight,
                                                    .dv = dv,
                                                    .gates = gates,
                                                    .x = x,
                                                    .weight = weight,
                                                    .table = table,
                                                    .tokens = tokens});
                }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor x = make.normal({s.b, s.t, s.c()}, dtype), y = make.zeros(x.shape, dtype),
                 gates = make.zeros({s.b, s.t}, DType::kF32),
                 weight = make.normal({1, kGateChannels}, DType::kF32),
                 lambda = make.normal({1}, DType::kF32);
    return Case{.name = "smear", .bytes = bytes_of({x, y, gates}), .run = [=](Stream& stream) {
                  smear(stream,
                        {.y = y, .gates = gates, .x = x, .weight = weight, .lambda = lambda});
                }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor x = make.normal({s.b, s.t, s.c()}, dtype), dy = make.normal(x.shape, dtype),
                 dx = make.zeros(x.shape, dtype), gates = make.normal({s.b, s.t}, DType::kF32),
                 weight = make.normal({1, kGateChannels}, DType::kF32),
                 dweight = make.zeros(weight.shape, DType::kF32),
                 lambda = make.normal({1}, DType::kF32), dlambda = make.zeros({1}, DType::kF32);
    return Case{.name = "smear_backward",
                .bytes = bytes_of({x, dy, dx, gates}),
                .run = [=](Stream& stream) {
                  smear_backward(stream, {.dx = dx,
                                          .dweight = dweight,
                                          .dlambda = dlambda,
                                          .dy = dy,
                                          .x = x,
                                          .gates = gates,
                                          .weight = weight,
                                          .lambda = lambda});
                }};
  });
}

inline void add_classifier_cases(std::vector<MakeCase>& out, DType dtype) {
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const std::int64_t rows = std::min<std::int64_t>(s.n(), 8192);  // a chunk of the classifier
    const Tensor logits = make.normal({rows, s.padded_vocab}, dtype),
                 losses = make.zeros({rows}, DType::kF32), targets = make.tokens(rows, s.vocab),
                 scale = make.structure(1.0F).typed(DType::kF32, 1);
    return Case{.name = "cross_entropy",
                .bytes = bytes_of({logits, logits, losses, targets}),
                .run = [=](Stream& stream) {
                  cross_entropy(stream, {.losses = losses,
                                         .logits = logits,
                                         .targets = targets,
                                         .vocab = s.vocab,
                                         .softcap = 15.0F,
                                         .gradient_scale = scale});
                }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor logits = make.normal({std::min<std::int64_t>(s.n(), 8192), s.padded_vocab}, dtype);
    return Case{
        .name = "soft_cap", .bytes = bytes_of({logits, logits}), .run = [=](Stream& stream) {
          soft_cap(stream, {.logits = logits, .softcap = 15.0F});
        }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const std::int64_t rows = std::min<std::int64_t>(s.n(), 8192);
    const Tensor logits = make.normal({rows, s.padded_vocab}, dtype),
                 best = make.zeros({rows}, DType::kI32);
    return Case{.name = "argmax", .bytes = bytes_of({logits, best}), .run = [=](Stream& stream) {
                  argmax(stream, {.y = best, .x = logits, .vocab = s.vocab});
                }};
  });
}

inline void add_document_cases(std::vector<MakeCase>& out) {
  out.emplace_back([](Tensors& make, const Sizes& s) {
    const Tensor tokens = make.tokens(s.n(), 500).view({s.b, s.t}),
                 starts = make.zeros(tokens.shape, DType::kI32);
    return Case{
        .name = "document_starts", .bytes = bytes_of({tokens, starts}), .run = [=](Stream& stream) {
          document_starts(stream, {.starts = starts, .tokens = tokens});
        }};
  });
}

// A decode step of 8 rows, at any positions of their caches.
inline void add_decode_cases(std::vector<MakeCase>& out, DType dtype) {
  constexpr std::int64_t kRows = 8;
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor keys = make.zeros({kRows, s.t, s.kv_heads, s.h}, dtype),
                 values = make.zeros(keys.shape, dtype),
                 k = make.normal({kRows, 1, s.kv_heads, s.h}, dtype),
                 positions = make.positions(kRows, s.t);
    return Case{.name = "cache_append", .bytes = 4 * bytes_of({k}), .run = [=](Stream& stream) {
                  cache_append(
                      stream,
                      {.keys = keys, .values = values, .k = k, .v = k, .positions = positions});
                }};
  });
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const Tensor q = make.normal({kRows, s.heads, s.h}, dtype), y = make.zeros(q.shape, dtype),
                 keys = make.normal({kRows, s.t, s.kv_heads, s.h}, dtype),
                 values = make.normal(keys.shape, dtype), positions = make.positions(kRows, s.t),
                 workspace = make.zeros({decode_attention_workspace(kRows, s.heads, s.t, s.h)},
                                        DType::kF32);
    return Case{.name = "decode_attention",
                .bytes = bytes_of({q, y, keys, values}) / 2,  // half of a cache, on average
                .run = [=](Stream& stream) {
                  decode_attention(stream, {.out = y,
                                            .q = q,
                                            .keys = keys,
                                            .values = values,
                                            .positions = positions,
                                            .workspace = workspace,
                                            .window = s.t});
                }};
  });
}

inline void add_model_cases(std::vector<MakeCase>& out, DType dtype) {
  add_activation_cases(out, dtype);
  add_norm_cases(out, dtype);
  add_residual_cases(out, dtype);
  add_rotary_cases(out, dtype);
  add_embedding_cases(out, dtype);
  add_gate_cases(out, dtype);
  add_classifier_cases(out, dtype);
  add_document_cases(out);
  add_decode_cases(out, dtype);
}

}  // namespace muo::bench
