// Fifty steps of the whole optimizer against a reference in double that shares no code with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <random>

#include "support/tolerance.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

constexpr int kSteps = 50;
using Matrix = std::vector<double>;  // row-major

// How far fp32 may take the result is measured, not guessed: the reference runs again with every
// stored value moved by a random part of fp32's unit roundoff, and every dot product by what
// random roundings of its partial sums give. The steps amplify that exactly as they amplify real
// rounding. As between runs of the trainer, four times the median of eight is equality.
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

// a (r, k) times b (k, c), either transposed on the way.
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

struct Scalars {
  double multiplier, momentum, weight_decay;
};
// N = 100, warmup 4, W = 65, beta ramp of 400.
Scalars scalars_at(int it) {
  Scalars s{};
  const double left = (100.0 - it) / 65.0;
  s.multiplier = it < 4 ? (it + 1) / 4.0 : it <= 35 ? 1.0 : left + (1.0 - left) * 0.05;
  s.momentum = static_cast<double>(static_cast<float>(0.85 + 0.12 * it / 400.0));
  s.weight_decay = static_cast<double>(
      static_cast<float>(0.28 * 0.5 * (1.0 + std::cos(std::numbers::pi * it / 100.0))));
  return s;
}

using State = std::map<std::string, Matrix>;  // by the suffix that checkpoints use

struct MuonReference {
  std::size_t rows, columns;
  Matrix w, m, s;

  void step(int it, const Matrix& g, Rounding& round) {
    const Scalars scalars = scalars_at(it);
    const double mu = scalars.momentum;
    Matrix x(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      m[i] = round(m[i] + (1 - mu) * (g[i] - m[i]));
      x[i] = round(g[i] + mu * (m[i] - g[i]));
    }
    equilibrate(x, round);
    const double divisor = norm(x) * 1.01 + 1e-6;
    for (double& v : x)
      v = round(v / divisor);
    x = orthogonalise(x, round);
    normalise(x, round);
    const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
    const double lr = static_cast<double>(
        static_cast<float>(0.02 * scalars.multiplier * std::sqrt(std::max(1.0, ratio))));
    const double decay = round(lr * scalars.weight_decay);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double decayed = x[i] * w[i] >= 0 ? decay * w[i] : 0.0;
      w[i] = round(w[i] - round(round(lr * x[i]) + decayed));
    }
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
    constexpr double kTriples[5][3] = {
        {8.156554524902461, -22.48329292557795, 15.878769915207462},
        {4.042929935166739, -2.808917465908714, 0.5000178451051316},
        {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
        {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
        {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};
    const bool tall = rows > columns;
    const std::size_t n = std::min(rows, columns);
    for (const auto& triple : kTriples) {
      const Matrix gram = tall ? product(x, x, n, rows, n, true, false, round)
                               : product(x, x, n, columns, n, false, true, round);
      Matrix b = product(gram, gram, n, n, n, false, false, round);
      for (std::size_t i = 0; i < b.size(); ++i)
        b[i] = round(round(triple[1] * gram[i]) + triple[2] * b[i]);
      const Matrix y = tall ? product(x, b, rows, n, n, false, false, round)
                            : product(b, x, n, n, columns, false, false, round);
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = round(round(triple[0] * x[i]) + y[i]);
    }
    return x;
  }

  // Muon+ and NorMuon.
  void normalise(Matrix& x, Rounding& round) {
    const auto n = static_cast<double>(std::min(rows, columns));
    const double plus = round(std::sqrt(n) / std::max(norm(x), 1e-6));
    for (double& v : x)
      v = round(v * plus);
    const auto index = [&](std::size_t i) { return rows >= columns ? i / columns : i % columns; };
    Matrix q(s.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i)
      q[index(i)] += x[i] * x[i] / n;
    double before = 0;
    double after = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      q[i] = round(q[i]);
      s[i] = round(s[i] + (1 - static_cast<double>(0.9F)) * (q[i] - s[i]));
      before += n * q[i];
      after += n * q[i] / std::max(s[i], 1e-10);
    }
    const double rescale = round(std::sqrt(before) / std::max(std::sqrt(after), 1e-10));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = round(x[i] * rescale / std::sqrt(std::max(s[index(i)], 1e-10)));
  }
};

struct AdamReference {
  double lr, weight_decay;
  float beta1, beta2;
  Matrix w = {}, m = {}, v = {};

  void step(int it, const Matrix& g, Rounding& round) {
    const double rate = static_cast<double>(static_cast<float>(lr * scalars_at(it).multiplier));
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
      {.name = "h.0.tall", .shape = {40, 24}},
      {.name = "h.0.square", .shape = {24, 24}},
      {.name = "h.0.wide", .shape = {24, 40}},
      {.name = "h.0.gate", .shape = {6, 12}},
      {.name = "h.0.zero", .shape = {16, 12}},  // gradient always zero
      {.name = "h.0.late", .shape = {12, 16}},  // zero at the first step, as nanochat's are
      {.name = "values.late", .shape = {40, 30}, .role = ParamRole::kValueEmbedding},
      {.name = "head", .shape = {33, 32}, .role = ParamRole::kUnembedding}};
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].use = static_cast<int>(i);
    params[i].ready = static_cast<int>(params.size() - 1 - i);
  }
  return params;
}

Matrix doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

AdamReference adam_reference(ParamRole role) {
  const double width = std::sqrt(768.0 / 24.0);  // of toy_hyper()
  switch (role) {
    case ParamRole::kUnembedding:
      return {.lr = 0.008 * width, .weight_decay = 0.01, .beta1 = 0.8F, .beta2 = 0.96F};
    case ParamRole::kEmbedding:
      return {.lr = 0.05 * width, .weight_decay = 0.001, .beta1 = 0.8F, .beta2 = 0.995F};
    case ParamRole::kValueEmbedding:
      return {.lr = 0.025 * width, .weight_decay = 0.01, .beta1 = 0.8F, .beta2 = 0.995F};
    case ParamRole::kResidLambda:
      return {.lr = 0.005, .weight_decay = 0.05, .beta1 = 0.8F, .beta2 = 0.95F};
    case ParamRole::kX0Lambda:
      return {.lr = 0.5, .weight_decay = 0, .beta1 = 0.96F, .beta2 = 0.95F};
    default:
      return {.lr = 0.2, .weight_decay = 0, .beta1 = 0.8F, .beta2 = 0.95F};
  }
}

// The change of the weights and the state after all steps.
State reference(const ParamSpec& param, Rounding round) {
  const auto size = static_cast<std::size_t>(param.shape.numel());
  const Matrix initial = doubles(toy_weights(param));
  std::vector<float> gradient(size);
  State state;
  const auto run = [&](auto& rule) {
    for (int it = 0; it < kSteps; ++it) {
      toy_gradient(gradient, param.name, it, 0, 1);
      rule.step(it, doubles(gradient), round);
    }
    for (std::size_t i = 0; i < size; ++i)
      rule.w[i] -= initial[i];
    state[""] = rule.w;
  };
  if (param.role == ParamRole::kMatrix) {
    MuonReference muon{.rows = static_cast<std::size_t>(param.shape[0]),
                       .columns = static_cast<std::size_t>(param.shape[1]),
                       .w = initial,
                       .m = Matrix(size),
                       .s = {}};
    muon.s.resize(std::max(muon.rows, muon.columns));
    run(muon);
    state[".momentum"] = muon.m;
    state[".variance"] = muon.s;
  } else {
    AdamReference adam = adam_reference(param.role);
    adam.w = initial;
    adam.m.resize(size);
    adam.v.resize(size);
    run(adam);
    state[".adam_m"] = adam.m;
    state[".adam_v"] = adam.v;
  }
  return state;
}

TEST(Optimizer, AgreesWithDoubleOverFiftySteps) {
  ToyRun run;
  run.params = reference_params();
  run.plan = make_sharding_plan(run.params, 1, "balanced");
  run.steps = kSteps;
  const ToyRank got = run_toy(run)[0];
  for (const ParamSpec& param : run.params) {
    const State want = reference(param, Rounding());
    std::vector<State> controls;
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
      controls.push_back(reference(param, Rounding(seed)));
    for (const auto& [suffix, values] : want) {
      std::vector<double> distances;
      for (State& control : controls)
        distances.push_back(relative_error(control[suffix], values));
      std::sort(distances.begin(), distances.end());
      const double limit = 4.0 * 0.5 * (distances[3] + distances[4]);
      const auto entry = std::ranges::find_if(
          got.state, [&](const ToyEntry& e) { return e.name == param.name + suffix; });
      ASSERT_NE(entry, got.state.end()) << param.name << suffix;
      Matrix computed = doubles(entry->values);
      if (suffix.empty()) {
        const std::vector<float> initial = toy_weights(param);
        for (std::size_t i = 0; i < computed.size(); ++i)
          computed[i] -= static_cast<double>(initial[i]);
      }
      EXPECT_LE(relative_error(computed, values), limit) << param.name << suffix;
      EXPECT_LT(limit, 1e-2) << param.name << suffix << ": rounding drowns the comparison";
    }
  }
}

TEST(Optimizer, ZeroGradientOnlyDecays) {
  const std::vector<ParamSpec> params = reference_params();
  ToyRun run;
  run.params = params;
  run.plan = make_sharding_plan(params, 1, "balanced");
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
