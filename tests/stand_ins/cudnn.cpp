// The stand-in of cuDNN's attention, behind kernels/cuda/cudnn_attention.h, in float64. With
// SIMT_CUDNN=1 it is available, and supports the same problems as cuDNN; with SIMT_CUDNN=wrong it
// is too, but its queries see one key more than the window admits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cudnn_answers.h"
#include "stand_ins/launches.h"

namespace muo::cuda {
namespace {

std::string_view variable() {
  const char* text = std::getenv("SIMT_CUDNN");  // NOLINT(concurrency-mt-unsafe): no thread sets it
  return text == nullptr ? "" : text;
}

using Numbers = std::vector<double>;

Numbers read(const Tensor& x) {
  Numbers out(static_cast<std::size_t>(x.numel()));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = x.dtype == DType::kF32 ? static_cast<double>(x.as<float>()[i])
                                    : static_cast<double>(to_f32(x.as<BF16>()[i]));
  return out;
}
void write(const Tensor& to, const Numbers& x) {
  for (std::size_t i = 0; i < x.size(); ++i)
    if (to.dtype == DType::kF32)
      to.as<float>()[i] = static_cast<float>(x[i]);
    else
      to.as<BF16>()[i] = to_bf16(static_cast<float>(x[i]));
}
// Rounded to bf16, as operands of products are.
double rounded(double x) { return static_cast<double>(to_f32(to_bf16(static_cast<float>(x)))); }

// Calls row(query, lse, keys) for each row of scores, with the offsets of the query's head, of its
// lse, and of the visible keys' heads.
struct Rows {
  AttentionProblem p;

  template <class Row>
  void each(const Row& row) const {
    for (std::int64_t b = 0; b < p.b; ++b)
      for (std::int64_t head = 0; head < p.heads; ++head)
        for (std::int64_t i = 0; i < p.t; ++i) {
          std::vector<std::size_t> keys;
          for (std::int64_t j = std::max<std::int64_t>(0, i - p.window); j <= i; ++j)
            keys.push_back(static_cast<std::size_t>(
                ((b * p.t + j) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.h));
          row(static_cast<std::size_t>(((b * p.t + i) * p.heads + head) * p.h),
              static_cast<std::size_t>((b * p.heads + head) * p.t + i), keys);
        }
  }
  [[nodiscard]] double dot(const Numbers& a, std::size_t at_a, const Numbers& b,
                           std::size_t at_b) const {
    double sum = 0;
    for (std::int64_t d = 0; d < p.h; ++d)
      sum += a[at_a + static_cast<std::size_t>(d)] * b[at_b + static_cast<std::size_t>(d)];
    return sum;
  }
  void add(Numbers& to, std::size_t at_to, double factor, const Numbers& x, std::size_t at) const {
    for (std::int64_t d = 0; d < p.h; ++d)
      to[at_to + static_cast<std::size_t>(d)] += factor * x[at + static_cast<std::size_t>(d)];
  }
};

void forward(const AttentionArgs& args) {
  const Rows rows{problem_of(attention_size_of(args))};
  const Numbers q = read(args.q), k = read(args.k), v = read(args.v);
  Numbers out(q.size());
  Numbers lse(static_cast<std::size_t>(args.lse.numel()));
  rows.each([&](std::size_t query, std::size_t at_lse, const std::vector<std::size_t>& keys) {
    Numbers scores;
    for (const std::size_t key : keys)
      scores.push_back(static_cast<double>(args.scale) * rows.dot(q, query, k, key));
    const double highest = *std::ranges::max_element(scores);
    double sum = 0;
    for (const double score : scores)
      sum += std::exp(score - highest);
    for (std::size_t n = 0; n < keys.size(); ++n)
      rows.add(out, query, rounded(std::exp(scores[n] - highest)) / sum, v, keys[n]);
    lse[at_lse] = highest + std::log(sum);
  });
  write(args.out, out);
  write(args.lse, lse);
}

void backward(const AttentionBackwardArgs& args) {
  const Rows rows{problem_of(attention_size_of(args))};
  const Numbers q = read(args.q), k = read(args.k), v = read(args.v), out = read(args.out),
                dout = read(args.dout), lse = read(args.lse);
  Numbers dq(q.size()), dk(k.size()), dv(v.size());
  const auto scale = static_cast<double>(args.scale);
  rows.each([&](std::size_t query, std::size_t at_lse, const std::vector<std::size_t>& keys) {
    const double delta = rows.dot(dout, query, out, query);
    for (const std::size_t key : keys) {
      const double p = std::exp(scale * rows.dot(q, query, k, key) - lse[at_lse]);
      const double ds = rounded(p * (rows.dot(dout, query, v, key) - delta));
      rows.add(dq, query, scale * ds, k, key);
      rows.add(dk, key, scale * ds, q, query);
      rows.add(dv, key, rounded(p), dout, query);
    }
  });
  write(args.dq, dq);
  write(args.dk, dk);
  write(args.dv, dv);
}

template <class Args>
void enqueue(NativeStream stream, Args args, AttentionDirection direction,
             void (*compute)(const Args&), stand_in::Addresses addresses) {
  const LibraryAttention answer =
      cudnn_answer(problem_of(attention_size_of(args)), direction, args.method.deterministic);
  if (!answer.why_not.empty()) throw Error(answer.why_not);
  MUO_CHECK(args.workspace.bytes() >= answer.workspace, "cuDNN attention: workspace of ",
            args.workspace.bytes(), " bytes, needs ", answer.workspace);
  addresses.certain.push_back(args.workspace.data);
  if (variable() == "wrong") ++args.window;
  const cudaError_t error = stand_in::enqueue(
      stream, "cuDNN's attention", addresses, [args, compute, bytes = answer.workspace] {
        std::memset(args.workspace.data, 0xFF, static_cast<std::size_t>(bytes));
        compute(args);
      });
  MUO_CHECK(error == cudaSuccess, "cuDNN attention: ", cudaGetErrorName(error));
}

}  // namespace

const std::string& cudnn_missing() {
  static const std::string missing =
      variable().empty() ? "this build has no cuDNN attention (SIMT_CUDNN=1: one that stands in)"
                         : "";
  return missing;
}

LibraryAttention cudnn_attention_support(const AttentionProblem& problem,
                                         AttentionDirection direction, bool deterministic) {
  if (!cudnn_missing().empty()) return {.why_not = cudnn_missing()};
  return cudnn_answer(problem, direction, deterministic);
}

void cudnn_attention(NativeStream stream, const AttentionArgs& args) {
  enqueue(stream, args, AttentionDirection::kForward, &forward,
          {.certain = {args.out.data, args.lse.data, args.q.data, args.k.data, args.v.data},
           .possible = {}});
}

void cudnn_attention_backward(NativeStream stream, const AttentionBackwardArgs& args) {
  enqueue(stream, args, AttentionDirection::kBackward, &backward,
          {.certain = {args.dq.data, args.dk.data, args.dv.data, args.dout.data, args.out.data,
                       args.lse.data, args.q.data, args.k.data, args.v.data},
           .possible = {}});
}

LibraryAttention cudnn_attention_support_on(const AttentionProblem& problem,
                                            AttentionDirection direction, bool deterministic,
                                            const DescribedGpu& /*gpu*/) {
  return cudnn_attention_support(problem, direction, deterministic);
}

}  // namespace muo::cuda
