#include "kit/sweep/finals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace muo::kit {
namespace {

using testing::ElementsAre;
using Scores = std::vector<std::vector<double>>;

TEST(Finals, AWorsePointIsWorseThanAnyOther) {
  const Scores scores = {{1, 2, 3, 4}, {1.5, 2.51, 3.5, 4.5}, {1.1, 1.9, 3.1, 3.9}};
  EXPECT_THAT(significantly_worse(scores, 0.01), ElementsAre(1));
  EXPECT_THAT(significantly_worse(scores, 1e-9), ElementsAre());
  constexpr double kNever = std::numeric_limits<double>::infinity();
  EXPECT_THAT(significantly_worse(Scores{{1, kNever}, {2, 3}, {kNever, kNever}}, 1e-9),
              ElementsAre(0, 2));
  EXPECT_NEAR(level_of_each_test(4, 0.95), 0.05 / 30, 1e-15);
  EXPECT_NEAR(level_of_each_test(2, 0.9), 0.1 / 5, 1e-15);
}

// Plays finals of points whose scores are the noise of a seed, its own noise and the point's mean.
// Returns the number of seeds after which a point was first judged to be worse; 0: none.
int seeds_until_judged(const std::vector<double>& means, const std::function<double()>& noise) {
  Scores scores(means.size());
  const double level = level_of_each_test(means.size(), 0.95);
  for (const int look : kLooks) {
    while (std::ssize(scores[0]) < look) {
      const double of_seed = 10 * noise();
      for (std::size_t i = 0; i < means.size(); ++i)
        scores[i].push_back(of_seed + means[i] + noise() / std::sqrt(2.0));
    }
    if (!significantly_worse(scores, level).empty()) return look;
  }
  return 0;
}

// At most 5 % of the finals of equal points judge any of them; 2,000 of each kind here, 100,000 in
// docs/experiments.md.
TEST(Finals, KeepTheirLevel) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  std::student_t_distribution<double> heavy(3);
  std::uniform_real_distribution<double> flat(-1, 1);
  const std::vector<std::function<double()>> noises = {
      [&] { return normal(random); }, [&] { return heavy(random); }, [&] { return flat(random); }};
  for (std::size_t kind = 0; kind < noises.size(); ++kind) {
    int judged = 0;
    for (int i = 0; i < 2000; ++i)
      judged += seeds_until_judged({0, 0, 0, 0}, noises[kind]) > 0 ? 1 : 0;
    EXPECT_LE(judged, 100) << "noise " << kind;
    EXPECT_GE(judged, 1) << "noise " << kind;
  }
}

// Two points two standard deviations of their differences apart.
TEST(Finals, TellPointsApart) {
  std::mt19937_64 random(12);
  std::normal_distribution<double> normal;
  int told = 0;
  for (int i = 0; i < 1000; ++i) {
    const int seeds = seeds_until_judged({0, 2}, [&] { return normal(random); });
    told += seeds > 0 && seeds <= 8 ? 1 : 0;
  }
  EXPECT_GE(told, 900);
}

}  // namespace
}  // namespace muo::kit
