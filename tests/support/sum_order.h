#pragma once

#include <cstdint>

#include "kernels/gemm.h"
#include "kernels/host/gemm.h"

namespace muo::test {

// An order in which a product's terms are added, as a library's kernels may that split them: into
// `parts` sums in fp32, which are added up from the last to the first. A part is a range of the
// terms or, interleaved, every parts-th of them.
struct SumOrder {
  std::int64_t parts = 1;
  bool interleaved = false;
};

// gemm() in that order.
void gemm_in_order(const GemmArgs& args, const SumOrder& order);

// While it lives, products of the host and of the SIMT tier are computed otherwise, in an order or
// by a function. No rank may be running when it comes and goes.
class Products {
 public:
  explicit Products(const SumOrder& order);
  explicit Products(host::Gemm gemm);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

 private:
  host::Gemm before_;
};

}  // namespace muo::test
