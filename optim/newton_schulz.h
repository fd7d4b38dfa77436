#pragma once

#include <span>
#include <string>

#include "optim/newton_schulz_form.h"
#include "optim/optimizer_version.h"
#include "runtime/memory/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo::optim {

// Newton-Schulz for a stack of matrices (k, R, C), n = min(R, C), and its tensors. Matrices with
// more rows than columns are instead multiplied from the right, by A = x^T x.
class NewtonSchulz {
 public:
  // Computes in `dtype` on matrices of `shape`, (k, R, C). The result is written to `result` or, if
  // that is absent, to a tensor of this object. Scratch comes from the arena. `iteration` must
  // outlive this object.
  NewtonSchulz(const std::string& name, const Shape& shape, DType dtype, Tensor result,
               std::span<const Quintic> iteration, const NewtonSchulzForm& form, Arena& arena);

  [[nodiscard]] Tensor input() const { return x_; }    // to be filled before run() overwrites it
  [[nodiscard]] Tensor scratch() const { return y_; }  // as large as the input, unused before run()
  [[nodiscard]] Tensor result() const { return result_; }  // either x_ or y_
  void run(Stream& stream) const;

 private:
  // Both return a factor of x: one_step() returns b A + c A A of one step, to which a x is added;
  // the other returns the product of a + b A + c A A over all steps.
  [[nodiscard]] Tensor one_step(Stream& stream, const Quintic& p) const;
  [[nodiscard]] Tensor several_steps(Stream& stream, std::span<const Quintic> steps) const;

  std::span<const Quintic> iteration_;
  bool symmetric_;
  bool tall_;
  std::size_t steps_per_gram_;
  Tensor x_, y_;
  Tensor result_;        // x_ or y_
  Tensor gram_;          // A, (k, n, n), like the tensors below
  Tensor polynomial_;    // a polynomial of A, or a product of polynomials
  Tensor next_, spare_;  // scratch for more than one step, and for more than two steps
};

}  // namespace muo::optim
