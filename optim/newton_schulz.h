#pragma once

#include <span>
#include <string>

#include "optim/newton_schulz_form.h"
#include "optim/optimizer_version.h"
#include "runtime/memory/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo::optim {

// The tensors of an iteration for a stack of matrices (k, R, C), n = min(R, C). A matrix with more
// rows than columns multiplies A = x^T x from the right instead.
class NewtonSchulz {
 public:
  // On numbers of `dtype` and matrices of `shape`, (k, R, C). The result goes to `result`, or,
  // where that is absent, to a tensor of its own. Scratch comes from the arena. `iteration`
  // outlives this.
  NewtonSchulz(const std::string& name, const Shape& shape, DType dtype, Tensor result,
               std::span<const Quintic> iteration, const NewtonSchulzForm& form, Arena& arena);

  [[nodiscard]] Tensor input() const { return x_; }        // fill before run; overwritten
  [[nodiscard]] Tensor scratch() const { return y_; }      // of its size, free before run
  [[nodiscard]] Tensor result() const { return result_; }  // one of the two
  void run(Stream& stream) const;

 private:
  // Each returns what multiplies x: b A + c A A of a step, to which a x is added, or the product of
  // a + b A + c A A of all steps.
  [[nodiscard]] Tensor one_step(Stream& stream, const Quintic& p) const;
  [[nodiscard]] Tensor several_steps(Stream& stream, std::span<const Quintic> steps) const;

  std::span<const Quintic> iteration_;
  bool symmetric_;
  bool tall_;
  std::size_t steps_per_gram_;
  Tensor x_, y_;
  Tensor result_;        // one of them
  Tensor gram_;          // (k, n, n), as the next are: A
  Tensor polynomial_;    // of A, or a product of such
  Tensor next_, spare_;  // scratch of more than one, and of more than two steps
};

}  // namespace muo::optim
