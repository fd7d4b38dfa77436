#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "bench/kernel_cases.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/symmetric_product.h"
#include "kernels/transpose.h"

// The operations with most of the arithmetic of a step: matrix products and attention.
namespace muo::bench {

inline AttentionRotary some_rotary(Tensors& make, const Sizes& s, DType dtype) {
  return {.q_rstd = make.normal({s.b, s.t, s.heads}, DType::kF32),
          .k_rstd = make.normal({s.b, s.t, s.kv_heads}, DType::kF32),
          .cos = make.normal({s.t, s.h / 2}, dtype),
          .sin = make.normal({s.t, s.h / 2}, dtype)};
}

// Attention as in runs without --deterministic. `documents` is the number of documents of equal
// length per row (0: none).
inline void add_attention_cases(std::vector<MakeCase>& out, DType dtype, std::int64_t window,
                                std::int64_t documents = 0) {
  struct Problem {
    AttentionSize size;
    Tensor q, k, v, out, lse, workspace, starts;
    double flops;  // FLOPs of visible pairs, for the forward pass
    std::string name;
  };
  const auto problem = [=](Tensors& make, const Sizes& s) {
    AttentionSize size{.b = s.b,
                       .t = s.t,
                       .heads = s.heads,
                       .kv_heads = s.kv_heads,
                       .h = s.h,
                       .window = std::min(window, s.t - 1),
                       .scale = 0.1F,
                       .dtype = dtype,
                       .method = {.deterministic = false},
                       .documents = documents > 0};
    const std::int64_t length = documents > 0 ? s.t / documents : s.t;
    double pairs = 0;
    for (std::int64_t i = 0; i < s.t; ++i)
      pairs += static_cast<double>(std::min(i % length, size.window) + 1);
    const Shape queries{s.b, s.t, s.heads, s.h}, keys{s.b, s.t, s.kv_heads, s.h};
    return Problem{size,
                   make.normal(queries, dtype),
                   make.normal(keys, dtype),
                   make.normal(keys, dtype),
                   make.zeros(queries, dtype),
                   make.zeros({s.b, s.heads, s.t}, DType::kF32),
                   make.zeros({attention_workspace(size)}, DType::kF32),
                   documents > 0 ? make.document_starts(s.b, s.t, length) : Tensor{},
                   4.0 * static_cast<double>(s.b * s.heads * s.h) * pairs,
                   "/window" + std::to_string(size.window) +
                       (documents > 0 ? "/documents" + std::to_string(documents) : std::string{})};
  };
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Problem p = problem(make, s);
    return Case{.name = "attention" + p.name, .flops = p.flops, .run = [=](Stream& stream) {
                  attention(stream, {.out = p.out,
                                     .lse = p.lse,
                                     .q = p.q,
                                     .k = p.k,
                                     .v = p.v,
                                     .workspace = p.workspace,
                                     .starts = p.starts,
                                     .window = p.size.window,
                                     .scale = p.size.scale,
                                     .method = p.size.method});
                }};
  });
  const auto backward = [=](Tensors& make, const Sizes& s, bool with_rotary) {
    const Problem p = problem(make, s);
    const Tensor dout = make.normal(p.q.shape, dtype), dq = make.zeros(p.q.shape, dtype),
                 dk = make.zeros(p.k.shape, dtype), dv = make.zeros(p.k.shape, dtype);
    const AttentionRotary rotary = with_rotary ? some_rotary(make, s, dtype) : AttentionRotary{};
    return Case{.name = "attention_backward" + p.name + (with_rotary ? "/rotary" : ""),
                .flops = 2.5 * p.flops,
                .run = [=](Stream& stream) {
                  attention_backward(stream, {.dq = dq,
                                              .dk = dk,
                                              .dv = dv,
                                              .dout = dout,
                                              .out = p.out,
                                              .lse = p.lse,
                                              .q = p.q,
                                              .k = p.k,
                                              .v = p.v,
                                              .workspace = p.workspace,
                                              .starts = p.starts,
                                              .window = p.size.window,
                                              .scale = p.size.scale,
                                              .method = p.size.method,
                                              .rotary = rotary});
                }};
  };
  out.emplace_back([=](Tensors& make, const Sizes& s) { return backward(make, s, false); });
  out.emplace_back([=](Tensors& make, const Sizes& s) { return backward(make, s, true); });
}

// y = x W^T and its gradients, for a linear layer of `in` to `out` channels.
inline void add_linear_cases(std::vector<MakeCase>& cases, DType dtype, std::int64_t in_heads,
                             std::int64_t out_heads) {
  const auto flops = [=](const Sizes& s) {
    return 2.0 * static_cast<double>(s.n() * s.h * in_heads) * static_cast<double>(s.h * out_heads);
  };
  const auto name = [=](const char* what, const Sizes& s) {
    return std::string("gemm/") + what + "/" + std::to_string(s.h * in_heads) + "x" +
           std::to_string(s.h * out_heads);
  };
  cases.emplace_back([=](Tensors& make, const Sizes& s) {
    const std::int64_t in = s.h * in_heads, out = s.h * out_heads;
    const Tensor x = make.normal({s.n(), in}, dtype), w = make.normal({out, in}, dtype),
                 y = make.zeros({s.n(), out}, dtype);
    return Case{.name = name("forward", s), .flops = flops(s), .run = [=](Stream& stream) {
                  gemm(stream, {.d = y, .a = x, .b = w, .transpose_b = true});
                }};
  });
  cases.emplace_back([=](Tensors& make, const Sizes& s) {
    const std::int64_t in = s.h * in_heads, out = s.h * out_heads;
    const Tensor dy = make.normal({s.n(), out}, dtype), w = make.normal({out, in}, dtype),
                 dx = make.zeros({s.n(), in}, dtype);
    return Case{.name = name("input_gradient", s), .flops = flops(s), .run = [=](Stream& stream) {
                  gemm(stream, {.d = dx, .a = dy, .b = w});
                }};
  });
  cases.emplace_back([=](Tensors& make, const Sizes& s) {
    const std::int64_t in = s.h * in_heads, out = s.h * out_heads;
    const Tensor dy = make.normal({s.n(), out}, dtype), x = make.normal({s.n(), in}, dtype),
                 dw = make.zeros({out, in}, DType::kF32);
    return Case{.name = name("weight_gradient", s), .flops = flops(s), .run = [=](Stream& stream) {
                  gemm(stream,
                       {.d = dw, .c = dw, .a = dy, .b = x, .beta = 1.0F, .transpose_a = true});
                }};
  });
}

// The three products of a Newton-Schulz iteration on a batch of (c, 4 c) matrices.
inline void add_newton_schulz_cases(std::vector<MakeCase>& out, DType dtype) {
  out.emplace_back([dtype](Tensors& make, const Sizes& s) {
    const std::int64_t m = s.c(), n = 4 * s.c();
    const Tensor x = make.normal({s.matrices, m, n}, dtype, 0.01F),
                 next = make.zeros(x.shape, dtype), a = make.zeros({s.matrices, m, m}, dtype),
                 b = make.zeros(a.shape, dtype);
    const double k = static_cast<double>(s.matrices * m) * static_cast<double>(m);
    return Case{.name = "newton_schulz_iteration/" + std::to_string(s.matrices) + "x" +
                        std::to_string(m) + "x" + std::to_string(n),
                .flops = k * (4.0 * static_cast<double>(n) + 2.0 * static_cast<double>(m)),
                .run = [=](Stream& stream) {
                  gemm(stream, {.d = a, .a = x, .b = x, .transpose_b = true});
                  gemm(stream, {.d = b, .c = a, .a = a, .b = a, .alpha = 2.0F, .beta = -4.8F});
                  gemm(stream, {.d = next, .c = x, .a = b, .b = x, .beta = 3.4F});
                }};
  });
}

// The symmetric products of these, and the third kind, products of matrices that commute.
// FLOPs count half.
inline void add_symmetric_cases(std::vector<MakeCase>& out, DType dtype) {
  enum class Kind { kGram, kPolynomial, kCommuting };
  const auto add = [&](const char* name, Kind kind) {
    out.emplace_back([=](Tensors& make, const Sizes& s) {
      const std::int64_t n = s.c(), k = kind == Kind::kGram ? 4 * n : n;
      const Tensor a = make.normal({s.matrices, n, k}, dtype, 0.01F),
                   d = make.zeros({s.matrices, n, n}, dtype);
      return Case{
          .name = std::string("symmetric_product/") + name + "/" + std::to_string(s.matrices) +
                  "x" + std::to_string(n) + "x" + std::to_string(k),
          .flops = static_cast<double>(s.matrices * n) * static_cast<double>(n * k),
          .run = [=](Stream& stream) {
            if (kind == Kind::kGram)
              symmetric_product(stream, {.d = d, .a = a});
            else if (kind == Kind::kPolynomial)
              symmetric_product(
                  stream, {.d = d, .c = a, .a = a, .alpha = 2.0F, .beta = -4.8F, .diagonal = 3.4F});
            else
              symmetric_product(stream, {.d = d, .a = a, .b = a});
          }};
    });
  };
  add("gram", Kind::kGram);
  add("polynomial", Kind::kPolynomial);
  add("commuting", Kind::kCommuting);
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const std::int64_t n = s.c();
    const Tensor x = make.normal({s.matrices, 4 * n, n}, dtype),
                 y = make.zeros({s.matrices, n, 4 * n}, dtype);
    return Case{.name = "transpose", .bytes = bytes_of({x, y}), .run = [=](Stream& stream) {
                  transpose(stream, {.y = y, .x = x});
                }};
  });
}

inline void add_product_cases(std::vector<MakeCase>& out, DType dtype) {
  add_attention_cases(out, dtype, 1 << 30);
  add_attention_cases(out, dtype, 512);
  add_attention_cases(out, dtype, 1 << 30, 4);
  add_linear_cases(out, dtype, 6, 6);
  add_linear_cases(out, dtype, 6, 24);
  add_newton_schulz_cases(out, dtype);
  add_symmetric_cases(out, dtype);
}

}  // namespace muo::bench
