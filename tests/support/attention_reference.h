#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <vector>

#include "kernels/attention.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {

using Index = std::int64_t;

struct AttentionCase {
  Index b, t, heads, kv_heads, h, window;
  float score_size = 1.0F;  // typical magnitude of a scaled score
  // Lengths of documents, which are used in turn; each row begins with the next one.
  // Empty: no documents.
  std::vector<Index> documents = {};
};

// Starts of documents, in the form of AttentionArgs::starts.
inline std::vector<std::int32_t> document_starts_of(const AttentionCase& c) {
  std::vector<std::int32_t> out;
  for (Index row = 0; row < c.b; ++row) {
    Index start = 0;
    auto document = static_cast<std::size_t>(row);
    for (Index i = 0; i < c.t; ++i) {
      if (i == start + c.documents[document % c.documents.size()]) {
        start = i;
        ++document;
      }
      out.push_back(static_cast<std::int32_t>(start));
    }
  }
  return out;
}

inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "b " << c.b << ", t " << c.t << ", heads " << c.heads << "/" << c.kv_heads << ", h "
             << c.h << ", window " << c.window << ", scores about " << c.score_size;
}

// Arguments and results of both directions.
struct AttentionProblem {
  explicit AttentionProblem(const AttentionCase& c, DType dtype = DType::kF32)
      : size(c),
        q(random_tensor({c.b, c.t, c.heads, c.h}, "q").rounded(dtype)),
        k(random_tensor({c.b, c.t, c.kv_heads, c.h}, "k").rounded(dtype)),
        v(random_tensor({c.b, c.t, c.kv_heads, c.h}, "v").rounded(dtype)),
        dout(random_tensor({c.b, c.t, c.heads, c.h}, "dout").rounded(dtype)),
        out({c.b, c.t, c.heads, c.h}, dtype),
        lse({c.b, c.heads, c.t}),
        dq({c.b, c.t, c.heads, c.h}, dtype),
        dk({c.b, c.t, c.kv_heads, c.h}, dtype),
        dv({c.b, c.t, c.kv_heads, c.h}, dtype),
        // Exactly as long as requested, so that AddressSanitizer detects accesses past the end.
        workspace({scratch(dtype)}) {
    if (!c.documents.empty()) starts = HostTensor({c.b, c.t}, document_starts_of(c));
  }

  [[nodiscard]] float scale() const {
    return size.score_size / std::sqrt(static_cast<float>(size.h));
  }
  [[nodiscard]] AttentionSize attention_size(DType dtype) const {
    return {.b = size.b,
            .t = size.t,
            .heads = size.heads,
            .kv_heads = size.kv_heads,
            .h = size.h,
            .window = size.window,
            .scale = scale(),
            .dtype = dtype,
            .documents = !size.documents.empty()};
  }
  [[nodiscard]] AttentionArgs forward_args() const {
    return {.out = out,
            .lse = lse,
            .q = q,
            .k = k,
            .v = v,
            .workspace = workspace,
            .starts = starts,
            .window = size.window,
            .scale = scale(),
            .method = {.kernels = forward}};
  }
  [[nodiscard]] AttentionBackwardArgs backward_args() const {
    return {.dq = dq,
            .dk = dk,
            .dv = dv,
            .dout = dout,
            .out = out,
            .lse = lse,
            .q = q,
            .k = k,
            .v = v,
            .workspace = workspace,
            .starts = starts,
            .window = size.window,
            .scale = scale(),
            .method = {.kernels = backward},
            .rotary = rotary};
  }
  void run() const {
    // Results must not depend on old contents of outputs or scratch.
    for (const HostTensor* x : {&out, &lse, &dq, &dk, &dv, &workspace})
      std::fill_n(x->tensor().data, x->tensor().bytes(), std::byte{0xFF});  // NaNs
    KernelStream stream;
    attention(stream, forward_args());
    std::ranges::fill(workspace.values(), std::numeric_limits<float>::quiet_NaN());
    attention_backward(stream, backward_args());
  }

  [[nodiscard]] std::int64_t scratch(DType dtype) const {
    const KernelStream stream;  // initialises the backend
    return attention_workspace(attention_size(dtype));
  }

  AttentionCase size;
  AttentionKernels forward = AttentionKernels::kAuto, backward = AttentionKernels::kAuto;
  AttentionRotary rotary = {};
  HostTensor q, k, v, dout, out, lse, dq, dk, dv, workspace, starts;
};

// The definition in double, with the magnitudes that bound rounding errors.
struct AttentionReference {
  struct Result {
    std::vector<double> value;
    std::vector<double> magnitude;
    explicit Result(const HostTensor& like)
        : value(static_cast<std::size_t>(like.tensor().numel())), magnitude(value) {}
  };

  AttentionReference(const AttentionProblem& p, Index window)
      : out(p.out), lse(p.lse), dq(p.dq), dk(p.dk), dv(p.dv) {
    const AttentionCase& c = p.size;
    const std::vector<double> q = p.q.doubles(), k = p.k.doubles(), v = p.v.doubles(),
                              dout = p.dout.doubles();
    const auto h = static_cast<std::size_t>(c.h);
    const double scale = static_cast<double>(p.scale());
    const auto start = [&](Index row, Index i) -> Index {
      return p.starts.tensor() ? p.starts.tensor().row(row).as<std::int32_t>()[i] : 0;
    };
    for (Index row = 0; row < c.b; ++row)
      for (Index head = 0; head < c.heads; ++head)
        for (Index i = 0; i < c.t; ++i) {
          const auto at_q = static_cast<std::size_t>(((row * c.t + i) * c.heads + head) * c.h);
          const auto at_k = [&](Index j) {
            return static_cast<std::size_t>(
                ((row * c.t + j) * c.kv_heads + head / (c.heads / c.kv_heads)) * c.h);
          };
          std::vector<Index> keys;
          for (Index j = 0; j < c.t; ++j)
            if (0 <= i - j && i - j <= window && start(row, i) <= j) keys.push_back(j);
          std::vector<double> score(keys.size()), p_ij(keys.size()), dp(keys.size()),
              dp_magnitude(keys.size());
          for (std::size_t n = 0; n < keys.size(); ++n) {
            double magnitude = 0;
            for (std::size_t d = 0; d < h; ++d) {
              const double product = scale * q[at_q + d] * k[at_k(keys[n]) + d];
              const double gradient = dout[at_q + d] * v[at_k(keys[n]) + d];
              score[n] += product;
              magnitude += std::abs(product);
              dp[n] += gradient;
              dp_magnitude[n] += std::abs(gradient);
            }
            score_magnitude = std::max(score_magnitude, magnitude);
          }
          const double highest = *std::ranges::max_element(score);
          double sum = 0;
          for (const double x : score)
            sum += std::exp(x - highest);
          const auto at_lse = static_cast<std::size_t>((row * c.heads + head) * c.t + i);
          lse.value[at_lse] = highest + std::log(sum);
          double dot = 0, dot_magnitude = 0;
          for (std::size_t n = 0; n < keys.size(); ++n) {
            p_ij[n] = std::exp(score[n] - lse.value[at_lse]);
            dot += p_ij[n] * dp[n];
            dot_magnitude += p_ij[n] * dp_magnitude[n];
          }
          lse.magnitude[at_lse] = 1.0 + std::abs(lse.value[at_lse]);
          for (std::size_t n = 0; n < keys.size(); ++n) {
            const std::size_t at = at_k(keys[n]);
            const double ds = scale * p_ij[n] * (dp[n] - dot);
            // Probabilities below the normal range may become zero.
            const double p_magnitude = p_ij[n] + 0x1p-126 / kUnitF32;
            const double ds_magnitude = scale * p_magnitude * (dp_magnitude[n] + dot_magnitude);
            for (std::size_t d = 0; d < h; ++d) {
              add(out, at_q + d, p_ij[n], p_magnitude, v[at + d]);
              add(dv, at + d, p_ij[n], p_magnitude, dout[at_q + d]);
              add(dq, at_q + d, ds, ds_magnitude, k[at + d]);
              add(dk, at + d, ds, ds_magnitude, q[at_q + d]);
            }
          }
        }
  }

  // The tolerance of a result, relative to its magnitude. A score has h roundings, and its absolute
  // error is a relative error of exp(score), like that of lse. Sums have at most t terms or, for dk
  // and dv, t per head.
  [[nodiscard]] double tolerance(const AttentionCase& c) const {
    return 2.0 * (1.0 + score_magnitude) * probable(c.h + c.t * c.heads / c.kv_heads);
  }

  Result out, lse, dq, dk, dv;
  double score_magnitude = 0;

 private:
  static void add(Result& result, std::size_t i, double factor, double magnitude, double x) {
    result.value[i] += factor * x;
    result.magnitude[i] += magnitude * std::abs(x);
  }
};

}  // namespace muo::test
