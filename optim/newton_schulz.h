#pragma once

#include <span>
#include <string>

#include "optim/optimizer_version.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// The tensors of an iteration for a batch (k, R, C), n = min(R, C). A matrix with more rows than
// columns multiplies A = x^T x from the right instead.
class NewtonSchulz {
 public:
  // On numbers of `dtype`. In fp32 the result goes to `u`, which is (k, R, C) fp32; in bf16 to a
  // tensor of its own. Scratch comes from the arena. `iteration`, an odd number of steps, outlives
  // this.
  NewtonSchulz(const std::string& name, Tensor u, DType dtype, std::span<const Quintic> iteration,
               Arena& arena);

  [[nodiscard]] Tensor input() const { return x_; }   // (k, R, C): fill before run; overwritten
  [[nodiscard]] Tensor result() const { return y_; }  // (k, R, C)
  void run(Stream& stream) const;

 private:
  std::span<const Quintic> iteration_;
  Tensor x_;
  Tensor y_;
  Tensor gram_;        // (k, n, n): A
  Tensor polynomial_;  // (k, n, n): b A + c A A
};

}  // namespace muo
