#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kit/sweep/sweep_view.h"

namespace muo::kit {

// Where an option's best value lies at each depth of a sweep, and what that predicts for another
// depth (--transfer-to).
//
// At each depth, the scores of values near the best one are fitted by least squares to
//   score = a(seed) + curvature * (ln value - ln optimum)^2,
// with one variance for all depths. The optima, weighted by their precision, are fitted to
//   ln optimum = ln prediction + ln drift * log2(depth / target);
// if they are further from this line than their variances explain, intervals widen by as much
// (Birge 1932, "The calculation of errors by the method of least squares").

// A value and its confidence interval.
struct Estimate {
  double value = 0, low = 0, high = 0;
};

struct DepthScores {
  struct Run {
    double value = 0;  // of the option, positive
    std::string seed = {};
    std::optional<double> score = {};  // empty: the run diverged
  };
  std::int64_t depth = 0;
  std::vector<Run> runs = {};
};

struct DepthOptimum {
  // A run's score above the fitted minimum of its seed.
  struct Excess {
    double value = 0, score = 0;
  };
  std::int64_t depth = 0;
  Estimate optimum;
  double curvature = 0;
  std::vector<Excess> runs;
  std::string problem;  // why there is no fit, and what to add; empty: it holds
};

struct Transfer {
  std::string option, unit;          // unit: of scores
  std::int64_t target = 0;           // depth
  double confidence = 0;             // of each interval
  std::vector<DepthOptimum> depths;  // without the target
  std::optional<DepthOptimum> own;   // of the target, if it was swept too: not part of the fit
  std::string problem;               // why there is no prediction; empty: it holds
  Estimate prediction;               // of the optimum at the target
  Estimate drift;                    // factor of the optimum per doubling of the depth
  // What the predicted value costs at most if the optimum is in the interval, by the largest
  // curvature of the depths.
  double cost = 0;
};

// `scores` are ordered by depth.
Transfer fit_transfer(const std::vector<DepthScores>& scores, std::int64_t target,
                      double confidence);

// The transfer of a sweep that check_transfer() has accepted.
Transfer transfer_of(const trainer::SweepOptions& options, const SweepPlan& plan,
                     const std::vector<TrialStatus>& status);

std::string transfer_text(const Transfer& transfer);
// The file, in the sweep's directory, of the report's page (page/transfer.js).
inline constexpr std::string_view kTransferFile = "transfer.json";
std::string transfer_json(const Transfer& transfer);

// Throws InputError if the sweep's options do not allow --transfer-to: it needs three depths and
// one option of positive numbers.
void check_transfer(const trainer::SweepOptions& options);

}  // namespace muo::kit
