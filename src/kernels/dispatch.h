#pragma once

#include "base/check.h"
#include "base/dtype.h"
#include "runtime/tensor.h"

namespace muo {

// Calls body.operator()<T>() with the storage type of a kernel's tensors, float or BF16. Kernels
// load and store both as fp32 (simd.h), so one template serves both.
template <class Body>
void dispatch(DType dtype, const Body& body) {
  if (dtype == DType::kBF16) return body.template operator()<BF16>();
  MUO_CHECK(dtype == DType::kF32, "no kernel for ", name_of(dtype));
  body.template operator()<float>();
}

// The same with the types of two tensors: body.operator()<A, B>().
template <class Body>
void dispatch_both(DType a, DType b, const Body& body) {
  dispatch(a,
           [&]<class A>() { dispatch(b, [&]<class B>() { body.template operator()<A, B>(); }); });
}

// The elements of a tensor, or null if it is absent.
template <class T>
T* data_or_null(const Tensor& t) {
  return t ? t.as<T>() : nullptr;
}

}  // namespace muo
