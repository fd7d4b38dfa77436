#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kit/sweep/scheduler.h"
#include "kit/sweep/sweep_directory.h"

namespace muo::kit {

// The level of each test between two of `finalists`, so that all tests of all looks together judge
// equal points to differ with a probability of at most 1 - confidence (Bonferroni).
double level_of_each_test(std::size_t finalists, double confidence);
// The indices of the points that are significantly worse than another one, or have an infinite
// score, as of a trial that diverged. By point: its scores, in
// the same order of seeds.
std::vector<std::size_t> significantly_worse(std::span<const std::vector<double>> scores,
                                             double level);

// The finals of a sweep (--finalists). Its own seeds select the best points; fresh seeds, the same
// for all finalists, then test them. At each look, a finalist that is significantly worse than
// another one leaves; the rest train further seeds until one is left or the looks are over. All
// decisions follow from the results of trials, so a resumed sweep repeats them.
class Finals {
 public:
  // The arguments must outlive this object.
  Finals(const trainer::SweepOptions& options, SweepPlanner& planner, Scheduler& scheduler,
         SweepDirectory& directory);

  // Adds a trial that an earlier process added, given as its line in the journal.
  void replay(const nlohmann::json& line);
  // Call this repeatedly with the scheduler's status: once no trial is left to train, adds those of
  // the next look, or closes the scheduler. Returns news for the user; empty: none.
  std::string advance(const std::vector<TrialStatus>& status);

  // The best finalist so far; empty before there are finalists.
  struct Best {
    std::size_t trial = 0;  // of the sweep's own trials
    std::string text;       // what the tests show
  };
  [[nodiscard]] std::optional<Best> best() const;

 private:
  struct Finalist {
    std::size_t trial = 0;       // the best of its point
    Point point;                 // without the seed
    std::vector<double> scores;  // by fresh seed
    bool is_out = false;
  };
  void choose(const std::vector<TrialStatus>& status);
  bool add_missing(std::size_t seeds);
  [[nodiscard]] Point with_seed(const Point& point, std::size_t index) const;
  std::string judge(const std::vector<TrialStatus>& status, std::size_t seeds);
  [[nodiscard]] std::vector<std::size_t> remaining() const;

  const trainer::SweepOptions& options_;
  SweepPlanner& planner_;
  Scheduler& scheduler_;
  SweepDirectory& directory_;
  std::uint64_t first_seed_ = 0;
  std::vector<Finalist> finalists_;
  std::map<Point, std::size_t> trials_;  // by point
  std::size_t look_ = 0;
  bool over_ = false;
};

}  // namespace muo::kit
