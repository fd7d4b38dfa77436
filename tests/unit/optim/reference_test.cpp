// Fifty steps of the whole optimizer against a reference in double that shares no code with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <random>
#include <span>
#include <utility>

#include "support/tolerance.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

constexpr int kSteps = 50;
using Matrix = std::vector<double>;  // row-major

// The tolerance for fp32 is measured: the reference runs again, with every stored value moved by a
// random part of fp32's unit roundoff, and every dot product by the effect of random roundings of
// its partial sums. The steps amplify these errors exactly as they amplify real rounding. As
// between runs of the trainer, distances up to four times the median of eight count as equal.
class Rounding {
 public:
  Rounding() = default;
  explicit Rounding(std::uint64_t seed) : unit_(kUnitF32), random_(seed) {}
  double operator()(double x) { return x + unit_ * x * draw(); }
  double dot(double sum, double sum_of_squared_terms, std::size_t length) {
    const double spread = std::sqrt(static_cast<double>(length) * sum_of_squared_terms);
    return (*this)(sum) + unit_ * spread * draw();
  }

 private:
  double draw() {
    if (unit_ == 0) return 0;
    return 2.0 * static_cast<double>(random_() >> 11) * 0x1p-53 - 1.0;
  }
  double unit_ = 0;
  std::mt19937_64 random_;
};

// Multiplies a (r, k) by b (k, c), either of which may be transposed.
Matrix product(const Matrix& a, const Matrix& b, std::size_t r, std::size_t k, std::size_t c,
               bool transpose_a, bool transpose_b, Rounding& round) {
  Matrix out(r * c);
  for (std::size_t i = 0; i < r; ++i)
    for (std::size_t j = 0; j < c; ++j) {
      double sum = 0;
      double squares = 0;
      for (std::size_t l = 0; l < k; ++l) {
        const double term =
            a[transpose_a ? l * r + i : i * k + l] * b[transpose_b ? j * k + l : l * c + j];
        sum += term;
        squares += term * term;
      }
      out[i * c + j] = round.dot(sum, squares, k);
    }
  return out;
}

double norm(const Matrix& x) { return frobenius<double>(x); }

struct Triple {
  double a, b, c;
};
constexpr std::array<Triple, 5> kPolar = {
    {{8.156554524902461, -22.48329292557795, 15.878769915207462},
     {4.042929935166739, -2.808917465908714, 0.5000178451051316},
     {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
     {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
     {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}}};
constexpr Triple kJordan = {3.4445, -4.7750, 2.0315};

// docs/spec/optimizer.md, "Versions", restated independently.
struct Version {
  const char* name;
  std::array<Triple, 5> triples;
  bool rows_to_one_norm;
  double norm_factor, norm_eps;
  bool unit_update, variance;
  float beta2;
  double ramp_per_step;  // by which momentum rises per step
  enum { kCosine, kLine, kNever } decay;
  bool adam_by_group;
};
const Version kVersions[] = {
    {"head", kPolar, true, 1.01, 1e-6, true, true, 0.9F, 0.12 / 400, Version::kCosine, true},
    {"2026-01", kPolar, false, 1.02, 1e-6, false, true, 0.95F, 0.1 / 300, Version::kLine, false},
    {"2025-10",
     {kJordan, kJordan, kJordan, kJordan, kJordan},
     false,
     1,
     1e-7,
     false,
     false,
     0,
     0.1 / 300,
     Version::kNever,
     false}};

struct Scalars {
  double multiplier, momentum, weight_decay;
};
// N = 100, warm-up 4, W = 65.
Scalars scalars_at(const Version& version, int it) {
  Scalars s{};
  const double left = (100.0 - it) / 65.0;
  s.multiplier = it < 4 ? (it + 1) / 4.0 : it <= 35 ? 1.0 : left + (1.0 - left) * 0.05;
  s.momentum = static_cast<double>(static_cast<float>(0.85 + version.ramp_per_step * it));
  const double shape = version.decay == Version::kCosine
                           ? 0.5 * (1.0 + std::cos(std::numbers::pi * it / 100.0))
                       : version.decay == Version::kLine ? 1.0 - it / 100.0
                                                         : 0.0;
  s.weight_decay = static_cast<double>(static_cast<float>(0.28 * shape));
  return s;
}

using State = std::map<std::string, Matrix>;  // tensors by checkpoint suffix

struct MuonReference {
  const Version& version;
  std::size_t rows, columns;
  Matrix w, m, s, u = {};

  void step(int it, const Matrix& g, Rounding& round) {
    const Scalars scalars = scalars_at(version, it);
    const double mu = scalars.momentum;
    Matrix x(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      m[i] = round(m[i] + (1 - mu) * (g[i] - m[i]));
      x[i] = round(g[i] + mu * (m[i] - g[i]));
    }
    if (version.rows_to_one_norm) equilibrate(x, round);
    const double divisor = norm(x) * version.norm_factor + version.norm_eps;
    for (double& v : x)
      v = round(v / divisor);
    x = orthogonalise(x, round);
    if (version.unit_update) unit_update(x, round);
    if (version.variance) divide_by_variance(x, round);
    const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
    const double lr = static_cast<double>(
        static_cast<float>(0.02 * scalars.multiplier * std::sqrt(std::max(1.0, ratio))));
    const double decay = round(lr * scalars.weight_decay);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double decayed = x[i] * w[i] >= 0 ? decay * w[i] : 0.0;
      w[i] = round(w[i] - round(round(lr * x[i]) + decayed));
    }
    u = std::move(x);
  }

  void equilibrate(Matrix& x, Rounding& round) const {
    const double target = norm(x) / std::sqrt(static_cast<double>(rows));
    for (std::size_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::size_t c = 0; c < columns; ++c)
        squares += x[r * columns + c] * x[r * columns + c];
      const double factor = round(target / std::max(std::sqrt(squares), 1e-6));
      for (std::size_t c = 0; c < columns; ++c)
        x[r * columns + c] *= factor;
    }
  }

  Matrix orthogonalise(Matrix x, Rounding& round) const {
    const bool tall = rows > columns;
    const std::size_t n = std::min(rows, columns);
    for (const Triple& triple : version.triples) {
      const Matrix gram = tall ? product(x, x, n, rows, n, true, false, round)
                               : product(x, x, n, columns, n, false, true, round);
      Matrix b = product(gram, gram, n, n, n, false, false, round);
      for (std::size_t i = 0; i < b.size(); ++i)
        b[i] = round(round(triple.b * gram[i]) + triple.c * b[i]);
      const Matrix y = tall ? product(x, b, rows, n, n, false, false, round)
                            : product(b, x, n, n, columns, false, false, round);
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = round(round(triple.a * x[i]) + y[i]);
    }
    return x;
  }

  void unit_update(Matrix& x, Rounding& round) const {
    const auto n = static_cast<double>(std::min(rows, columns));
    const double plus = round(std::sqrt(n) / std::max(norm(x), 1e-6));
    for (double& v : x)
      v = round(v * plus);
  }

  void divide_by_variance(Matrix& x, Rounding& round) {
    const auto n = static_cast<double>(std::min(rows, columns));
    const auto index = [&](std::size_t i) { return rows >= columns ? i / columns : i % columns; };
    Matrix q(s.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i)
      q[index(i)] += x[i] * x[i] / n;
    double before = 0;
    double after = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      q[i] = round(q[i]);
      s[i] = round(s[i] + static_cast<double>(1.0F - version.beta2) * (q[i] - s[i]));
      before += n * q[i];
      after += n * q[i] / std::max(s[i], 1e-10);
    }
    const double rescale = round(std::sqrt(before) / std::max(std::sqrt(after), 1e-10));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = round(x[i] * rescale / std::sqrt(std::max(s[index(i)], 1e-10)));
  }
};

struct AdamReference {
  const Version& version;
  double lr, weight_decay;
  float beta1, beta2;
  Matrix w = {}, m = {}, v = {}, u = {};

  void step(int it, const Matrix& g, Rounding& round) {
    const double rate =
        static_cast<double>(static_cast<float>(lr * scalars_at(version, it).multiplier));
    const auto t = static_cast<float>(it + 1);
    // The specification computes these in fp32.
    const auto c1 = static_cast<double>(1.0F - std::pow(beta1, t));
    const auto c2 = static_cast<double>(1.0F - std::pow(beta2, t));
    const auto to_m = static_cast<double>(1.0F - beta1);
    const auto to_v = static_cast<double>(1.0F - beta2);
    const double decay = round(1.0 - rate * static_cast<double>(static_cast<float>(weight_decay)));
    const double scaled = round(rate / c1);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = round(w[i] * decay);
      m[i] = round(m[i] + to_m * round(g[i] - m[i]));
      v[i] = round(v[i] + to_v * round(round(g[i] * g[i]) - v[i]));
      const double d = round(round(std::sqrt(round(v[i] / c2))) + 1e-10);
      w[i] = round(w[i] - round(scaled * round(m[i] / d)));
    }
  }
};

std::vector<ParamSpec> reference_params() {
  std::vector<ParamSpec> params = {
      {.name = "wte", .shape = {37, 32}, .role = ParamRole::kEmbedding},
      {.name = "resid", .shape = {5}, .role = ParamRole::kResidLambda},
      {.name = "x0", .shape = {5}, .role = ParamRole::kX0Lambda},
      {.name = "smear", .shape = {1, 24}, .role = ParamRole::kSmear},
      {.name = "h.0.tall", .shape = {40, 24}, .layer = 0},
      {.name = "h.0.square", .shape = {24, 24}, .layer = 0},
      {.name = "h.0.wide", .shape = {24, 40}, .layer = 0},
      {.name = "h.0.gate", .shape = {6, 12}, .layer = 0},
      {.name = "h.0.zero", .shape = {16, 12}, .layer = 0},  // the gradient is always zero
      {.name = "h.0.late",
       .shape = {12, 16},
       .layer = 0},  // the gradient is zero at the first step, as in nanochat
      {.name = "values.late", .shape = {40, 30}, .role = ParamRole::kValueEmbedding},
      {.name = "head", .shape = {33, 32}, .role = ParamRole::kUnembedding}};
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].use = static_cast<int>(i);
    params[i].ready = static_cast<int>(params.size() - 1 - i);
  }
  return params;
}

Matrix doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

AdamReference adam_reference(const Version& version, ParamRole role) {
  const double width = std::sqrt(768.0 / 24.0);  // as in toy_hyper()
  const auto group = [&](double lr, double weight_decay, float beta1, float beta2) {
    if (version.adam_by_group) return AdamReference{version, lr, weight_decay, beta1, beta2};
    // Older versions give value embeddings the full rate of the token embedding, not half of it.
    if (role == ParamRole::kValueEmbedding) lr *= 2;
    return AdamReference{version, lr, 0, beta1, 0.95F};
  };
  switch (role) {
    case ParamRole::kUnembedding:
      return group(0.008 * width, 0.01, 0.8F, 0.96F);
    case ParamRole::kEmbedding:
      return group(0.05 * width, 0.001, 0.8F, 0.995F);
    case ParamRole::kValueEmbedding:
      return group(0.025 * width, 0.01, 0.8F, 0.995F);
    case ParamRole::kResidLambda:
      return group(0.005, 0.05, 0.8F, 0.95F);
    case ParamRole::kX0Lambda:
      return group(0.5, 0, 0.96F, 0.95F);
    default:
      return group(0.2, 0, 0.8F, 0.95F);
  }
}

// Root mean squares in the first steps: of the change, of the weight and of Muon's update.
constexpr std::int64_t kSizedSteps = 20;
struct Sizes {
  Matrix change, weight, u;
  void add(const Matrix& before, const Matrix& after, const Matrix& update) {
    if (change.size() == static_cast<std::size_t>(kSizedSteps)) return;
    const double scale = 1 / std::sqrt(static_cast<double>(after.size()));
    Matrix difference(after.size());
    std::ranges::transform(after, before, difference.begin(), std::minus());
    change.push_back(norm(difference) * scale);
    weight.push_back(norm(after) * scale);
    u.push_back(norm(update) * scale);
  }
};

// The change of the weights and the state after all steps, and the sizes of the updates.
State reference(const Version& version, const ParamSpec& param, Rounding round) {
  const auto size = static_cast<std::size_t>(param.shape.numel());
  const Matrix initial = doubles(toy_weights(param));
  std::vector<float> gradient(size);
  State state;
  Sizes sizes;
  const auto run = [&](auto& rule) {
    for (int it = 0; it < kSteps; ++it) {
      toy_gradient(gradient, param.name, it, 0, 1);
      const Matrix before = rule.w;
      rule.step(it, doubles(gradient), round);
      sizes.add(before, rule.w, rule.u);
    }
    for (std::size_t i = 0; i < size; ++i)
      rule.w[i] -= initial[i];
    state[""] = rule.w;
  };
  if (param.role == ParamRole::kMatrix) {
    MuonReference muon{.version = version,
                       .rows = static_cast<std::size_t>(param.shape[0]),
                       .columns = static_cast<std::size_t>(param.shape[1]),
                       .w = initial,
                       .m = Matrix(size),
                       .s = {}};
    muon.s.resize(std::max(muon.rows, muon.columns));
    run(muon);
    state[".momentum"] = muon.m;
    if (version.variance) state[".variance"] = muon.s;
  } else {
    AdamReference adam = adam_reference(version, param.role);
    adam.w = initial;
    adam.m.resize(size);
    adam.v.resize(size);
    run(adam);
    state[".adam_m"] = adam.m;
    state[".adam_v"] = adam.v;
  }
  state[" change"] = sizes.change;
  state[" weight"] = sizes.weight;
  state[" u"] = sizes.u;
  return state;
}

// The same quantities from a run.
Matrix result_of(const ToyRank& rank, const std::vector<ParamSpec>& params, std::size_t param,
                 const std::string& suffix) {
  const ParamSpec& spec = params[param];
  if (suffix.starts_with(" ")) {
    const auto elements = static_cast<double>(spec.shape.numel());
    Matrix sizes;
    for (const auto& squares :
         std::span(rank.updates).first(static_cast<std::size_t>(kSizedSteps))) {
      const UpdateSquares& of = squares[param];
      sizes.push_back(std::sqrt((suffix == " change"   ? of.change
                                 : suffix == " weight" ? of.weight
                                                       : of.u) /
                                elements));
    }
    return sizes;
  }
  const auto entry = std::ranges::find(rank.state, spec.name + suffix, &ToyEntry::name);
  if (entry == rank.state.end()) return {};
  Matrix values = doubles(entry->values);
  if (suffix.empty()) {
    const std::vector<float> initial = toy_weights(spec);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] -= static_cast<double>(initial[i]);
  }
  return values;
}

class OptimizerOf : public ::testing::TestWithParam<Version> {};

TEST_P(OptimizerOf, AgreesWithDoubleOverFiftySteps) {
  const Version& version = GetParam();
  ToyRun run;
  run.params = reference_params();
  run.steps = kSteps;
  std::vector<ToyRank> of_forms;
  for (const optim::NewtonSchulzForm& form : optim::newton_schulz_forms()) {
    run.plan =
        optim::make_sharding_plan(run.params, 1, "balanced", {}, optim::Gather::kSimple, form);
    run.plan.version = &optim::optimizer_version(version.name);
    run.hyper = [&] { return toy_hyper(run.plan.version); };
    of_forms.push_back(run_toy(run)[0]);
  }
  for (std::size_t p = 0; p < run.params.size(); ++p) {
    const ParamSpec& param = run.params[p];
    const State want = reference(version, param, Rounding());
    std::vector<State> controls;
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
      controls.push_back(reference(version, param, Rounding(seed)));
    for (const auto& [suffix, values] : want) {
      std::vector<double> distances;
      distances.reserve(controls.size());
      for (State& control : controls)
        distances.push_back(relative_error(control[suffix], values));
      std::sort(distances.begin(), distances.end());
      double limit = 4.0 * 0.5 * (distances[3] + distances[4]);
      // Two factors that all elements share, such as the rate, may round alike in every step.
      if (suffix.starts_with(" ")) limit += worst_case(2 * kSizedSteps);
      for (std::size_t f = 0; f < of_forms.size(); ++f)
        EXPECT_LE(relative_error(result_of(of_forms[f], run.params, p, suffix), values), limit)
            << param.name << suffix << " " << optim::newton_schulz_forms()[f].name;
      EXPECT_LT(limit, 1e-2) << param.name << suffix << ": rounding errors dominate the comparison";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, OptimizerOf, ::testing::ValuesIn(kVersions),
                         [](const auto& version) {
                           std::string name = version.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Optimizer, ZeroGradientOnlyDecays) {
  const std::vector<ParamSpec> params = reference_params();
  ToyRun run;
  run.params = params;
  run.plan = optim::make_sharding_plan(params, 1, "balanced");
  const ToyRank got = run_toy(run)[0];
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].name != "h.0.zero" && params[i].name != "h.0.late") continue;
    const std::vector<float> initial = toy_weights(params[i]);
    const double ratio =
        static_cast<double>(params[i].shape[0]) / static_cast<double>(params[i].shape[1]);
    const auto lr = static_cast<float>(0.02 * 0.25 * std::sqrt(std::max(1.0, ratio)));
    const float decay = lr * 0.28F;
    for (std::size_t j = 0; j < initial.size(); ++j)
      ASSERT_EQ(got.weights[i][j], initial[j] - decay * initial[j]) << params[i].name;
  }
}

}  // namespace
}  // namespace muo::test
