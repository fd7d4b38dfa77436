#pragma once

#include <algorithm>

#include "support/tensors.h"

namespace muo::test {

// The values of a tensor, placed one element after the beginning of memory that ends with them: at
// an address that a view may have, but that no access of several elements supports.
class Unaligned {
 public:
  explicit Unaligned(const HostTensor& values)
      : memory_({values.tensor().numel() + 1}, values.tensor().dtype),
        view_(memory_.tensor().rows(1, memory_.tensor().numel())) {
    view_.shape = values.tensor().shape;
    std::copy_n(values.tensor().data, view_.bytes(), view_.data);
  }
  operator Tensor() const { return view_; }  // NOLINT(google-explicit-constructor)

  [[nodiscard]] std::vector<double> doubles() const {
    const HostTensor out(view_.shape, view_.dtype);
    std::copy_n(view_.data, view_.bytes(), out.tensor().data);
    return out.doubles();
  }

 private:
  HostTensor memory_;
  Tensor view_;
};

}  // namespace muo::test
