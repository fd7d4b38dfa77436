#include "optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/gemm.h"
#include "kernels/symmetric_product.h"

namespace muo::optim {

NewtonSchulz::NewtonSchulz(const std::string& name, const Shape& shape, DType dtype, Tensor result,
                           std::span<const Quintic> iteration, const NewtonSchulzForm& form,
                           Arena& arena)
    : iteration_(iteration),
      symmetric_(form.symmetric),
      tall_(shape[1] > shape[2]),
      steps_per_gram_(shape[1] == shape[2] ? 1 : static_cast<std::size_t>(form.steps_per_gram)) {
  MUO_CHECK(form.symmetric || form.steps_per_gram == 1, form.name,
            ": several steps per Gram matrix need the symmetric form");
  const std::int64_t n = std::min(shape[1], shape[2]);
  const auto scratch = [&](const char* what, const Shape& of) {
    return arena.tensor(
        {.name = name + what, .shape = of, .dtype = dtype, .category = MemoryCategory::kWorkspace});
  };
  const Shape square{shape[0], n, n};
  x_ = scratch(".x", shape);
  result_ = y_ = result ? result : scratch(".y", shape);
  // One run of steps takes x to y, the next one y to x.
  const std::size_t runs = (iteration.size() + steps_per_gram_ - 1) / steps_per_gram_;
  if (runs % 2 == 0) std::swap(x_, y_);
  gram_ = scratch(".gram", square);
  polynomial_ = scratch(".polynomial", square);
  if (steps_per_gram_ > 1) next_ = scratch(".next", square);
  if (steps_per_gram_ > 2) spare_ = scratch(".spare", square);
}

void NewtonSchulz::run(Stream& stream) const {
  Tensor from = x_;
  Tensor to = y_;
  for (std::size_t done = 0; done < iteration_.size(); done += steps_per_gram_) {
    const auto steps =
        iteration_.subspan(done, std::min(steps_per_gram_, iteration_.size() - done));
    if (symmetric_)
      symmetric_product(stream, {.d = gram_, .a = from, .transpose_a = tall_});
    else
      gemm(stream, {.d = gram_, .a = from, .b = from, .transpose_a = tall_, .transpose_b = !tall_});
    const auto apply = [&](const Tensor& left, float beta) {
      gemm(stream,
           {.d = to, .c = from, .a = tall_ ? from : left, .b = tall_ ? left : from, .beta = beta});
    };
    if (steps.size() == 1)
      apply(one_step(stream, steps.front()), static_cast<float>(steps.front().a));
    else
      apply(several_steps(stream, steps), 0.0F);
    std::swap(from, to);
  }
}

Tensor NewtonSchulz::one_step(Stream& stream, const Quintic& p) const {
  const auto alpha = static_cast<float>(p.c);
  const auto beta = static_cast<float>(p.b);
  if (symmetric_)
    symmetric_product(stream,
                      {.d = polynomial_, .c = gram_, .a = gram_, .alpha = alpha, .beta = beta});
  else
    gemm(stream,
         {.d = polynomial_, .c = gram_, .a = gram_, .b = gram_, .alpha = alpha, .beta = beta});
  return polynomial_;
}

Tensor NewtonSchulz::several_steps(Stream& stream, std::span<const Quintic> steps) const {
  const auto evaluate = [&](const Tensor& d, const Quintic& p) {
    symmetric_product(stream, {.d = d,
                               .c = gram_,
                               .a = gram_,
                               .alpha = static_cast<float>(p.c),
                               .beta = static_cast<float>(p.b),
                               .diagonal = static_cast<float>(p.a)});
  };
  const auto multiply = [&](const Tensor& d, const Tensor& a, const Tensor& b) {
    symmetric_product(stream, {.d = d, .a = a, .b = b});
  };
  // A <- p(A) A p(A)
  const auto advance = [&](const Tensor& p_of_a, const Tensor& scratch) {
    multiply(scratch, gram_, p_of_a);
    multiply(gram_, scratch, p_of_a);
  };
  Tensor product = polynomial_;
  Tensor spare = spare_;
  evaluate(product, steps.front());
  advance(product, next_);
  for (const Quintic& p : steps.subspan(1, steps.size() - 2)) {
    evaluate(next_, p);
    advance(next_, spare);
    multiply(spare, product, next_);
    std::swap(product, spare);
  }
  evaluate(next_, steps.back());
  multiply(gram_, product, next_);
  return gram_;
}

}  // namespace muo::optim
