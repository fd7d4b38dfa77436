#pragma once

#include <cstdint>
#include <string>

#include "base/check.h"
#include "kernels/gemm.h"

namespace muo {

// "NT 1024x384x1536": op(a) is (m, k), op(b) is (k, n); "... x8" for a batch of them.
inline std::string product_shape(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t k,
                                 std::int64_t n, std::int64_t batch) {
  return concat(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', ' ', m, 'x', k, 'x', n,
                batch == 1 ? std::string{} : concat(" x", batch));
}

}  // namespace muo

namespace muo::host {
void gemm(const GemmArgs& args);

// What computes products on streams of the host, and those of the SIMT tier: gemm(), unless a test
// has put another function there, while no rank was running.
using Gemm = void (*)(const GemmArgs&);
Gemm& gemm_in_use();
}  // namespace muo::host
