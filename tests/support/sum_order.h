#pragma once

#include <cstdint>

#include "kernels/gemm.h"
#include "kernels/host/gemm.h"

namespace muo::test {

// An order in which the terms of a product are summed, as in kernels that split a sum: `parts` sums
// in fp32, which are added from the last to the first. A part is a range of the terms or, if
// interleaved, every parts-th of them.
struct SumOrder {
  std::int64_t parts = 1;
  bool interleaved = false;
};

// gemm() with that order of sums.
void gemm_in_order(const GemmArgs& args, const SumOrder& order);

// During its lifetime, products of the host and the SIMT tier use another order of sums, or another
// function. No rank may be running when it is constructed or destroyed.
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
