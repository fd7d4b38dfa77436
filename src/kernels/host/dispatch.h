#pragma once
#include "runtime/tensor.h"
namespace muo::host {
template <class F>
void dispatch(DType dtype, F&& f) {
  MUO_CHECK(dtype == DType::kF32);
  f.template operator()<float>();
}
}  // namespace muo::host
