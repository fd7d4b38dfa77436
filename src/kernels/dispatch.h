#pragma once

#include "base/check.h"
#include "base/dtype.h"

namespace muo::host {

// Calls body.operator()<T>() with the type in which a kernel's tensors are stored: float or BF16.
// Kernels load and store it as fp32 (simd.h), so one template serves both.
template <class Body>
void dispatch(DType dtype, const Body& body) {
  if (dtype == DType::kBF16) return body.template operator()<BF16>();
  MUO_CHECK(dtype == DType::kF32, "no host kernel for ", name_of(dtype));
  body.template operator()<float>();
}

}  // namespace muo::host
