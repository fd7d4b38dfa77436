#pragma once

#include <algorithm>
#include <vector>

#include "bench/kernel_cases.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/commit.h"
#include "kernels/draw.h"
#include "kernels/fingerprint.h"
#include "kernels/metrics.h"
#include "kernels/muon.h"
#include "kernels/phase_clock.h"
#include "kernels/reduce.h"
#include "kernels/step_scalars.h"

// The operations of the update, and those of the bookkeeping of a step.
namespace muo::bench {

inline HyperParameters some_hyper_parameters() {
  HyperParameters hyper;
  hyper.adam[0] = {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-10, .weight_decay = 0.1};
  return hyper;
}
inline StepScalars committing_scalars() {
  StepScalars scalars;
  fill_step_scalars(some_hyper_parameters(), scalars);
  scalars.commit = 1;
  return scalars;
}

// `dtype` is that of replicas and of the iterations; masters, gradients and state are fp32.
inline void add_muon_cases(std::vector<MakeCase>& out, DType dtype, bool tall) {
  struct Matrices {
    Shape shape;
    std::int64_t longer;
    Tensor scalars;
  };
  const auto matrices = [tall](Tensors& make, const Sizes& s) {
    const std::int64_t c = s.c();
    return Matrices{tall ? Shape{s.matrices, 4 * c, c} : Shape{s.matrices, c, 4 * c}, 4 * c,
                    make.structure(committing_scalars())};
  };
  const std::string suffix = tall ? "/tall" : "/wide";
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Matrices of = matrices(make, s);
    const Tensor grad = make.normal(of.shape, DType::kF32),
                 momentum = make.normal(of.shape, DType::kF32), x = make.zeros(of.shape, dtype),
                 norms = make.zeros({of.shape[0], of.shape[1]}, DType::kF32);
    return Case{.name = "muon_input" + suffix,
                .bytes = bytes_of({grad, momentum, x, x, x}),
                .run = [=](Stream& stream) {
                  muon_input(stream, {.x = x,
                                      .row_norms = norms,
                                      .grad = grad,
                                      .momentum = momentum,
                                      .scalars = of.scalars});
                }};
  });
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Matrices of = matrices(make, s);
    const Tensor x = make.normal(of.shape, dtype), u = make.zeros(of.shape, DType::kF32),
                 variance = make.zeros({s.matrices, of.longer}, DType::kF32),
                 new_variance = make.zeros(variance.shape, DType::kF32);
    return Case{
        .name = "muon_scale" + suffix, .bytes = bytes_of({x, x, u}), .run = [=](Stream& stream) {
          muon_scale(stream, {.u = u,
                              .x = x,
                              .new_variance = new_variance,
                              .variance = variance,
                              .scalars = of.scalars});
        }};
  });
}

// 16-bit state: split masters, and bf16 momentum and moments that are rounded stochastically.
inline void add_lean_cases(std::vector<MakeCase>& out) {
  const auto count = [](const Sizes& s) { return s.matrices * 4 * s.c() * s.c(); };
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Shape n{count(s)};
    const Tensor lower = make.zeros(n, DType::kU16), replica = make.normal(n, DType::kBF16),
                 m = make.normal(n, DType::kBF16), u = make.normal(n, DType::kF32),
                 grad = make.normal(n, DType::kF32), scalars = make.structure(committing_scalars());
    return Case{.name = "muon_commit/lean",
                .bytes = bytes_of({lower, lower, replica, replica, m, m, u, grad}),
                .run = [=](Stream& stream) {
                  muon_commit(stream, {.weight = lower,
                                       .replica = replica,
                                       .momentum = m,
                                       .u = u,
                                       .grad = grad,
                                       .scalars = scalars});
                }};
  });
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Shape n{count(s)};
    const Tensor lower = make.zeros(n, DType::kU16), replica = make.normal(n, DType::kBF16),
                 m = make.normal(n, DType::kBF16), v = make.zeros(n, DType::kBF16),
                 grad = make.normal(n, DType::kF32), scalars = make.structure(committing_scalars());
    return Case{.name = "adamw/lean",
                .bytes = bytes_of({lower, lower, replica, replica, m, m, v, v, grad}),
                .run = [=](Stream& stream) {
                  adamw(stream, {.weight = lower,
                                 .replica = replica,
                                 .m = m,
                                 .v = v,
                                 .grad = grad,
                                 .scalars = scalars,
                                 .rounding = StochasticRounding{}});
                }};
  });
}

inline void add_update_cases(std::vector<MakeCase>& out, DType dtype) {
  const auto count = [](const Sizes& s) { return s.matrices * 4 * s.c() * s.c(); };
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Shape n{count(s)};
    const Tensor w = make.normal(n, DType::kF32), m = make.normal(n, DType::kF32),
                 u = make.normal(n, DType::kF32), grad = make.normal(n, DType::kF32),
                 variance = make.zeros({s.c()}, DType::kF32),
                 new_variance = make.zeros({s.c()}, DType::kF32),
                 replica = dtype == DType::kBF16 ? make.zeros(n, dtype) : Tensor{},
                 scalars = make.structure(committing_scalars());
    return Case{.name = "muon_commit",
                .bytes = bytes_of({w, w, m, m, u, grad}) + (replica ? bytes_of({replica}) : 0.0),
                .run = [=](Stream& stream) {
                  muon_commit(stream, {.weight = w,
                                       .replica = replica,
                                       .momentum = m,
                                       .variance = variance,
                                       .u = u,
                                       .grad = grad,
                                       .new_variance = new_variance,
                                       .scalars = scalars});
                }};
  });
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Shape n{count(s)};
    const Tensor w = make.normal(n, DType::kF32), m = make.normal(n, dtype),
                 v = make.zeros(n, dtype), grad = make.normal(n, DType::kF32),
                 replica = dtype == DType::kBF16 ? make.zeros(n, dtype) : Tensor{},
                 scalars = make.structure(committing_scalars());
    return Case{
        .name = "adamw",
        .bytes = bytes_of({w, w, m, m, v, v, grad}) + (replica ? bytes_of({replica}) : 0.0),
        .run = [=](Stream& stream) {
          adamw(
              stream,
              {.weight = w, .replica = replica, .m = m, .v = v, .grad = grad, .scalars = scalars});
        }};
  });
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const DType other = dtype == DType::kBF16 ? DType::kF32 : DType::kBF16;
    const Tensor x = make.normal({count(s)}, other), y = make.zeros(x.shape, dtype);
    return Case{.name = "cast_to", .bytes = bytes_of({x, y}), .run = [=](Stream& stream) {
                  cast(stream, {.y = y, .x = x});
                }};
  });
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Tensor x = make.normal({count(s)}, dtype), sum = make.zeros({1}, DType::kI64);
    return Case{.name = "fingerprint", .bytes = bytes_of({x}), .run = [=](Stream& stream) {
                  fingerprint(stream, {.out = sum, .x = x});
                }};
  });
}

inline void add_draw_case(std::vector<MakeCase>& out, const char* name, const InitialValues& init) {
  out.emplace_back([=](Tensors& make, const Sizes& s) {
    const Tensor y = make.zeros({s.matrices * 4 * s.c() * s.c()}, DType::kF32);
    return Case{.name = name, .bytes = bytes_of({y}), .run = [=](Stream& stream) {
                  draw(stream, {.y = y, .random = {1, "y"}, .init = init, .count = y.numel()});
                }};
  });
}

inline void add_book_cases(std::vector<MakeCase>& out) {
  using Kind = InitialValues::Kind;
  add_draw_case(out, "draw, constant", {Kind::kConstant, 1.0});
  add_draw_case(out, "draw, normal", {Kind::kNormal, 1.0});
  add_draw_case(out, "draw, uniform", {Kind::kUniform, 1.0});
  add_draw_case(out, "draw, positive", {Kind::kPositive, 1.0});
  add_draw_case(out, "draw, linear", {Kind::kLinear, 0.0, 1.0});
  out.emplace_back([](Tensors& make, const Sizes& s) {
    const Shape n{s.matrices * 4 * s.c() * s.c()};
    const Tensor x = make.zeros(n, DType::kF32), grad = make.normal(n, DType::kF32),
                 momentum = make.normal(n, DType::kF32),
                 scalars = make.structure(committing_scalars());
    return Case{.name = "muon_nesterov",
                .bytes = bytes_of({x, grad, momentum}),
                .run = [=](Stream& stream) {
                  muon_nesterov(stream,
                                {.x = x, .grad = grad, .momentum = momentum, .scalars = scalars});
                }};
  });
  out.emplace_back([](Tensors& make, const Sizes& s) {
    const Tensor x = make.normal({s.matrices * 4 * s.c() * s.c()}, DType::kF32),
                 total = make.zeros({}, DType::kF64);
    return Case{.name = "sum_squares", .bytes = bytes_of({x}), .run = [=](Stream& stream) {
                  sum_squares(stream, {.out = total, .x = x});
                }};
  });
  out.emplace_back([](Tensors& make, const Sizes& s) {
    const Tensor x = make.normal({s.matrices * 4 * s.c() * s.c()}, DType::kF32),
                 found = make.zeros({}, DType::kF64);
    return Case{.name = "note_nonfinite", .bytes = bytes_of({x}), .run = [=](Stream& stream) {
                  note_nonfinite(stream, {.found = found, .x = x});
                }};
  });
  out.emplace_back([](Tensors& make, const Sizes& s) {
    const Tensor x = make.normal({s.n()}, DType::kF32), total = make.zeros({}, DType::kF64);
    return Case{.name = "sum", .bytes = bytes_of({x}), .run = [=](Stream& stream) {
                  sum(stream, {.out = total, .x = x});
                }};
  });
  out.emplace_back([](Tensors& make, const Sizes& s) {
    const Tensor losses = make.normal({s.n()}, DType::kF32), targets = make.tokens(s.n(), s.vocab),
                 bytes = make.tokens(s.vocab, 8), totals = make.zeros({4}, DType::kF64);
    return Case{
        .name = "loss_totals", .bytes = bytes_of({losses, targets}), .run = [=](Stream& stream) {
          loss_totals(stream,
                      {.out = totals, .losses = losses, .targets = targets, .bytes = bytes});
        }};
  });
  out.emplace_back([](Tensors& make, const Sizes& /*s*/) {
    const Tensor scalars = make.structure(committing_scalars()),
                 hyper = make.structure(some_hyper_parameters()),
                 statistics = make.structure(LossStatistics{}),
                 totals = make.zeros({kRankIndices + 1}, DType::kF64),
                 clock = make.structure(PhaseClock{}),
                 ring = make.zeros({4 * static_cast<std::int64_t>(sizeof(MetricsRecord))},
                                   DType::kBytes);
    return Case{
        .name = "books_of_a_step", .run = [=](Stream& stream) {
          advance_step(stream, {.scalars = scalars, .hyper = hyper});
          agree_commit(
              stream,
              {.scalars = scalars, .statistics = statistics, .hyper = hyper, .totals = totals});
          write_metrics(stream, {.ring = ring, .totals = totals, .scalars = scalars});
          finish_step(stream, {.scalars = scalars});
          mark_phase(stream, {.clock = clock});
        }};
  });
}

inline void add_optimizer_cases(std::vector<MakeCase>& out, DType dtype) {
  add_muon_cases(out, dtype, true);
  add_muon_cases(out, dtype, false);
  add_update_cases(out, dtype);
  if (dtype == DType::kBF16) add_lean_cases(out);
}

}  // namespace muo::bench
