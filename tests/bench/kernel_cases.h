#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "base/zipf.h"
#include "kernels/embedding.h"
#include "runtime/device.h"

// One case for every operation, in memory of the device. Cases are timed on a GPU, and run by
// memory checkers at small sizes.
namespace muo::bench {

struct Sizes {
  std::int64_t b, t, heads, kv_heads, h, vocab, padded_vocab, matrices;
  [[nodiscard]] std::int64_t n() const { return b * t; }
  [[nodiscard]] std::int64_t c() const { return heads * h; }
};
// nanochat's d12 with a batch whose tensors are larger than any L2 cache.
inline constexpr Sizes kFull{.b = 32,
                             .t = 2048,
                             .heads = 6,
                             .kv_heads = 6,
                             .h = 128,
                             .vocab = 32768,
                             .padded_vocab = 32768,
                             .matrices = 12};
// Sizes that are not multiples of vectors or tiles, and that run every path of a kernel once.
inline constexpr Sizes kSmall{.b = 2,
                              .t = 67,
                              .heads = 6,
                              .kv_heads = 2,
                              .h = 24,
                              .vocab = 301,
                              .padded_vocab = 304,
                              .matrices = 3};

// Owns the tensors of a case, and fills them through pinned memory.
class Tensors {
 public:
  Tensors(Device& device, Stream& stream) : device_(device), stream_(stream) {}

  // Normally distributed values: repetitions of a random block.
  Tensor normal(const Shape& shape, DType dtype, float scale = 1.0F) {
    return of_normal(shape, dtype, [=](float z) { return scale * z; });
  }
  // Squares of normally distributed values.
  Tensor squares(const Shape& shape, DType dtype) {
    return of_normal(shape, dtype, [](float z) { return z * z; });
  }
  // Tokens in [0, vocab), distributed as in text; positions in [0, bound), uniformly distributed.
  Tensor tokens(std::int64_t n, std::int64_t vocab) {
    return integers(n, [=](float uniform) { return zipf_token(uniform, vocab); });
  }
  Tensor positions(std::int64_t n, std::int64_t bound) {
    return integers(n, [=](float uniform) {
      return static_cast<std::int32_t>(uniform * static_cast<float>(bound));
    });
  }
  // (b, t) starts of documents of equal length.
  Tensor document_starts(std::int64_t b, std::int64_t t, std::int64_t length) {
    const Tensor out = zeros({b, t}, DType::kI32);
    fill(
        out,
        [&](Tensor part) {
          for (std::int64_t i = 0; i < part.numel(); ++i)
            part.as<std::int32_t>()[i] = static_cast<std::int32_t>(i % t / length * length);
        },
        t);
    return out;
  }
  Tensor token_groups(Tensor tokens, std::int64_t vocab) {
    const Tensor out = zeros({token_groups_size(tokens.numel(), vocab)}, DType::kI32);
    group_tokens(stream_, {.groups = out, .tokens = tokens, .vocab = vocab});
    stream_.synchronize();
    return out;
  }
  Tensor zeros(const Shape& shape, DType dtype) {
    Tensor out{.data = nullptr, .shape = shape, .dtype = dtype, .device = device_.rank()};
    buffers_.push_back(device_.allocate(out.bytes(), "a benchmark's tensor"));
    out.data = buffers_.back()->data();
    return out;
  }
  template <class T>
  Tensor structure(const T& value) {
    const Tensor out = zeros({static_cast<std::int64_t>(sizeof(T))}, DType::kBytes);
    stream_.copy(out, host_struct(value));
    stream_.synchronize();
    return out;
  }

 private:
  template <class F>
  Tensor integers(std::int64_t n, const F& of_uniform) {
    const Tensor out = zeros({n}, DType::kI32);
    const CounterRandom random(2, "tokens");
    fill(
        out,
        [&](Tensor part) {
          for (std::int64_t i = 0; i < part.numel(); ++i)
            part.as<std::int32_t>()[i] = of_uniform(random.uniform(static_cast<std::uint64_t>(i)));
        },
        n);
    return out;
  }
  template <class F>
  Tensor of_normal(const Shape& shape, DType dtype, const F& f) {
    const Tensor out = zeros(shape, dtype);
    constexpr std::int64_t kBlock = 1 << 16;
    std::vector<float> values(kBlock);
    const CounterRandom random(1, "values");
    for (std::int64_t i = 0; i < kBlock; ++i)
      values[static_cast<std::size_t>(i)] = f(random.normal(static_cast<std::uint64_t>(i)));
    fill(
        out,
        [&](Tensor part) {
          for (std::int64_t i = 0; i < part.numel(); ++i)
            if (dtype == DType::kBF16)
              part.as<BF16>()[i] = to_bf16(values[static_cast<std::size_t>(i)]);
            else
              part.as<float>()[i] = values[static_cast<std::size_t>(i)];
        },
        kBlock);
    return out;
  }
  // `write` computes the first `block` elements on the host; the remaining elements repeat them.
  template <class Write>
  void fill(const Tensor& out, const Write& write, std::int64_t block) {
    block = std::min(block, out.numel());
    const auto staging = device_.allocate_pinned(block * size_of(out.dtype), "staging");
    Tensor host = out;
    host.data = staging->data();
    host.shape = {block};
    host.device = -1;
    write(host);
    for (std::int64_t at = 0; at < out.numel(); at += block) {
      const std::int64_t count = std::min(block, out.numel() - at);
      stream_.copy(out.elements(at, count), host.elements(0, count));
    }
    stream_.synchronize();
  }

  Device& device_;
  Stream& stream_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

struct Case {
  std::string name;
  double bytes = 0;  // minimum memory traffic
  double flops = 0;  // 0 if it is bound by memory
  std::function<void(Stream&)> run = {};
};
// Makes the tensors, then the case that uses them.
using MakeCase = std::function<Case(Tensors&, const Sizes&)>;

inline double bytes_of(std::initializer_list<Tensor> tensors) {
  double sum = 0;
  for (const Tensor& tensor : tensors)
    sum += static_cast<double>(tensor.bytes());
  return sum;
}

}  // namespace muo::bench
