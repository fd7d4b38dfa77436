#include "support/sum_order.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace muo::test {
namespace {

SumOrder order_in_use;

// Terms first, first + step, ... of a product: columns of a matrix whose rows contain its
// terms, or else rows.
struct Terms {
  std::int64_t first = 0, step = 1, count = 0;
};

template <class T>
std::vector<std::byte> taken(const Tensor& x, std::int64_t matrix, bool columns,
                             const Terms& terms) {
  const std::size_t last = x.shape.rank() - 1;
  const std::int64_t n = x.shape[last];
  const T* from = x.as<T>() + matrix * x.shape[last - 1] * n;
  const std::int64_t others = columns ? x.shape[last - 1] : n;
  std::vector<std::byte> out(static_cast<std::size_t>(others * terms.count) * sizeof(T));
  T* to = reinterpret_cast<T*>(out.data());
  for (std::int64_t i = 0; i < terms.count; ++i)
    for (std::int64_t j = 0, term = terms.first + i * terms.step; j < others; ++j)
      if (columns)
        to[j * terms.count + i] = from[j * n + term];
      else
        to[i * n + j] = from[term * n + j];
  return out;
}

Tensor part_of(const Tensor& x, std::int64_t matrix, bool columns, const Terms& terms,
               std::vector<std::byte>& memory) {
  const std::size_t last = x.shape.rank() - 1;
  memory = x.dtype == DType::kBF16 ? taken<BF16>(x, matrix, columns, terms)
                                   : taken<float>(x, matrix, columns, terms);
  return {
      .data = memory.data(),
      .shape = columns ? Shape{x.shape[last - 1], terms.count} : Shape{terms.count, x.shape[last]},
      .dtype = x.dtype};
}

template <class T>
void store(const GemmArgs& args, std::int64_t at, const std::vector<float>& sums) {
  T* d = args.d.as<T>() + at;
  const T* c = args.c && args.beta != 0.0F ? args.c.as<T>() + at : nullptr;
  for (std::size_t i = 0; i < sums.size(); ++i)
    d[i] = from_f32<T>(c == nullptr ? sums[i] : sums[i] + args.beta * to_f32(c[i]));
}

}  // namespace

void gemm_in_order(const GemmArgs& args, const SumOrder& order) {
  const std::size_t rank = args.d.shape.rank();
  const std::int64_t m = args.d.shape[rank - 2];
  const std::int64_t n = args.d.shape[rank - 1];
  const std::int64_t k = args.a.shape[args.transpose_a ? rank - 2 : rank - 1];
  const std::int64_t parts = std::min(order.parts, k);
  if (parts <= 1) return host::gemm(args);
  std::vector<float> sums, part(static_cast<std::size_t>(m * n));
  std::vector<std::byte> a, b;
  for (std::int64_t matrix = 0; matrix < (rank == 3 ? args.d.shape[0] : 1); ++matrix) {
    sums.assign(part.size(), 0.0F);
    for (std::int64_t p = parts - 1; p >= 0; --p) {
      const std::int64_t begin = k * p / parts;
      const Terms terms = order.interleaved ? Terms{p, parts, (k - p + parts - 1) / parts}
                                            : Terms{begin, 1, k * (p + 1) / parts - begin};
      host::gemm({.d = host_tensor(part.data(), {m, n}),
                  .a = part_of(args.a, matrix, !args.transpose_a, terms, a),
                  .b = part_of(args.b, matrix, args.transpose_b, terms, b),
                  .alpha = args.alpha,
                  .transpose_a = args.transpose_a,
                  .transpose_b = args.transpose_b});
      for (std::size_t i = 0; i < part.size(); ++i)
        sums[i] += part[i];
    }
    if (args.d.dtype == DType::kBF16)
      store<BF16>(args, matrix * m * n, sums);
    else
      store<float>(args, matrix * m * n, sums);
  }
}

Products::Products(const SumOrder& order)
    : Products([](const GemmArgs& args) { gemm_in_order(args, order_in_use); }) {
  order_in_use = order;
}

Products::Products(host::Gemm gemm) : before_(std::exchange(host::active_gemm(), gemm)) {}

Products::~Products() { host::active_gemm() = before_; }

}  // namespace muo::test
