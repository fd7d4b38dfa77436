#pragma once

#include <array>
#include <string>

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// x <- a x + (b A + c A A) x with A = x x^T, five times (spec/optimizer 1.3; "The Polar Express",
// Amsel et al. 2025): singular values in [1e-3, 1] go to within 15% of 1. A matrix with more rows
// than columns uses A = x^T x from the right instead.
struct PolarExpress {
  double a, b, c;
};
inline constexpr std::array<PolarExpress, 5> kPolarExpress = {{
    {8.156554524902461, -22.48329292557795, 15.878769915207462},
    {4.042929935166739, -2.808917465908714, 0.5000178451051316},
    {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
    {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
}};

// The tensors of the iteration for a batch (k, R, C), n = min(R, C).
class NewtonSchulz {
 public:
  // On numbers of `dtype`. In fp32 the result goes to `u`, which is (k, R, C) fp32; in bf16 to a
  // tensor of its own. Scratch comes from the arena.
  NewtonSchulz(const std::string& name, Tensor u, DType dtype, Arena& arena);

  [[nodiscard]] Tensor input() const { return x_; }   // (k, R, C): fill before run; overwritten
  [[nodiscard]] Tensor result() const { return y_; }  // (k, R, C)
  void run(Stream& stream) const;

 private:
  Tensor x_;
  Tensor y_;
  Tensor gram_;        // (k, n, n): A
  Tensor polynomial_;  // (k, n, n): b A + c A A
};

}  // namespace muo
