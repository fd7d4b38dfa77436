#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "base/check.h"

namespace muo::data {
namespace {

using testing::HasSubstr;

std::vector<std::int64_t> epoch_positions(const RowSampler& sampler, std::int64_t epoch) {
  std::vector<std::int64_t> out;
  const std::int64_t first = epoch * sampler.rows_per_epoch();
  for (std::int64_t row = first; row < first + sampler.rows_per_epoch(); ++row)
    out.push_back(sampler.position(row));
  return out;
}

TEST(RowSampler, EveryEpochVisitsEveryBlockOnceInsideTheData) {
  constexpr std::int64_t kSeq = 16;
  for (const std::int64_t blocks : {1, 2, 3, 4, 7, 8, 9, 63, 64, 65, 100, 257, 1000, 4097}) {
    for (const std::int64_t rest : {1, 2, 9, 16}) {
      const std::int64_t tokens = blocks * kSeq + rest;
      const RowSampler sampler(tokens, kSeq, 3);
      EXPECT_GE(sampler.rows_per_epoch(), std::max<std::int64_t>(1, blocks - 1));
      for (const std::int64_t epoch : {0, 1, 2, 1000}) {
        auto positions = epoch_positions(sampler, epoch);
        std::sort(positions.begin(), positions.end());
        EXPECT_GE(positions.front(), 0);
        EXPECT_LE(positions.back() + kSeq + 1, tokens);
        for (std::size_t i = 0; i + 1 < positions.size(); ++i)
          ASSERT_EQ(positions[i + 1] - positions[i], kSeq) << blocks << " blocks, epoch " << epoch;
      }
    }
  }
}

TEST(RowSampler, EpochsAndSeedsDiffer) {
  const RowSampler one(100'000, 64, 1);
  const RowSampler two(100'000, 64, 2);
  const auto first = epoch_positions(one, 0);
  EXPECT_EQ(first, epoch_positions(RowSampler(100'000, 64, 1), 0));
  const auto order = [](std::vector<std::int64_t> positions) {
    const auto lowest = *std::min_element(positions.begin(), positions.end());
    for (auto& position : positions)
      position = (position - lowest) / 64;
    return positions;
  };
  const auto same_place = [&](const std::vector<std::int64_t>& other) {
    const auto a = order(first);
    const auto b = order(other);
    std::ptrdiff_t equal = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      equal += a[i] == b[i];
    return equal;
  };
  // Two random orders agree in one position on average; in ten with probability 1e-7.
  EXPECT_LT(same_place(epoch_positions(one, 1)), 10);
  EXPECT_LT(same_place(epoch_positions(two, 0)), 10);
  EXPECT_LT(same_place(epoch_positions(two, 1)), 10);
}

TEST(RowSampler, BlockBoundariesMoveBetweenEpochs) {
  const RowSampler sampler(10'000, 64, 5);
  std::set<std::int64_t> borders;
  for (std::int64_t epoch = 0; epoch < 64; ++epoch)
    borders.insert(epoch_positions(sampler, epoch).front() % 64);
  EXPECT_GT(borders.size(), 32U);  // 64 draws from 64 values have 40 distinct ones on average
}

TEST(RowSampler, EveryTokenIsATargetInSomeEpoch) {
  constexpr std::int64_t kTokens = 165;
  const RowSampler sampler(kTokens, 8, 7);
  std::vector<bool> seen(kTokens, false);
  for (std::int64_t epoch = 0; epoch < 400; ++epoch)
    for (const std::int64_t begin : epoch_positions(sampler, epoch))
      std::fill_n(seen.begin() + begin + 1, 8, true);
  EXPECT_EQ(std::count(seen.begin() + 1, seen.end(), false), 0);
}

// Chi-squared of the number of hits per cell against their mean. For n cells, it has mean n - 1 and
// standard deviation sqrt(2 (n - 1)).
double chi_square(const std::vector<std::int64_t>& counts) {
  const double mean = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0LL)) /
                      static_cast<double>(counts.size());
  double sum = 0;
  for (const std::int64_t count : counts)
    sum += (static_cast<double>(count) - mean) * (static_cast<double>(count) - mean) / mean;
  return sum;
}

void expect_uniform(const std::vector<std::int64_t>& counts) {
  const double freedom = static_cast<double>(counts.size()) - 1;
  // Six standard deviations; because the seed is fixed, this does not fail by chance.
  EXPECT_LT(chi_square(counts), freedom + 6 * std::sqrt(2 * freedom));
}

TEST(RowSampler, EachPositionOfAnEpochHasEveryBlockEquallyOften) {
  for (const std::int64_t blocks : {2, 3, 5, 8, 16, 21}) {
    const RowSampler sampler((blocks + 1) * 4, 4, 11);
    ASSERT_EQ(sampler.rows_per_epoch(), blocks);
    const auto size = static_cast<std::size_t>(blocks);
    std::vector<std::vector<std::int64_t>> hits(size, std::vector<std::int64_t>(size, 0));
    for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
      const auto positions = epoch_positions(sampler, epoch);
      const auto lowest = *std::min_element(positions.begin(), positions.end());
      for (std::size_t place = 0; place < size; ++place)
        ++hits[place][static_cast<std::size_t>((positions[place] - lowest) / 4)];
    }
    for (const auto& counts : hits)
      expect_uniform(counts);
  }
}

TEST(RowSampler, OrdersOfFourBlocksAreEquallyLikely) {
  const RowSampler sampler(20, 4, 13);
  ASSERT_EQ(sampler.rows_per_epoch(), 4);
  std::vector<std::vector<std::int64_t>> orders;
  std::vector<std::int64_t> order{0, 1, 2, 3};
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  std::vector<std::int64_t> counts(orders.size(), 0);
  for (std::int64_t epoch = 0; epoch < 12'000; ++epoch) {
    auto positions = epoch_positions(sampler, epoch);
    const auto lowest = *std::min_element(positions.begin(), positions.end());
    for (auto& position : positions)
      position = (position - lowest) / 4;
    const auto found = std::find(orders.begin(), orders.end(), positions);
    ASSERT_NE(found, orders.end());
    ++counts[static_cast<std::size_t>(found - orders.begin())];
  }
  expect_uniform(counts);
}

TEST(RowSampler, OffsetsOfEpochsAreUniform) {
  const RowSampler sampler(170, 16, 17);
  const std::int64_t choices = 170 - sampler.rows_per_epoch() * 16;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(choices), 0);
  for (std::int64_t epoch = 0; epoch < 5000; ++epoch) {
    const auto positions = epoch_positions(sampler, epoch);
    ++counts.at(static_cast<std::size_t>(*std::min_element(positions.begin(), positions.end())));
  }
  expect_uniform(counts);
}

TEST(RowSampler, NeighbouringRowsAreSpreadOverATrillionBlocks) {
  constexpr std::int64_t kBlocks = 1'000'000'000'000;
  constexpr std::int64_t kSeq = 1024;
  constexpr std::int64_t kTokens = (kBlocks + 1) * kSeq;  // about 2^50
  const RowSampler sampler(kTokens, kSeq, 19);
  ASSERT_EQ(sampler.rows_per_epoch(), kBlocks);
  std::set<std::int64_t> seen;
  std::vector<std::int64_t> tenths(10, 0);
  for (std::int64_t n = kBlocks - 20'000; n < kBlocks; ++n) {  // up to the end of the epoch
    const std::int64_t position = sampler.position(n);
    ASSERT_GE(position, 0);
    ASSERT_LE(position + kSeq + 1, kTokens);
    EXPECT_TRUE(seen.insert(position).second);
    ++tenths[static_cast<std::size_t>(std::min<std::int64_t>(9, position / (kTokens / 10)))];
  }
  expect_uniform(tenths);
  EXPECT_GE(sampler.position(kBlocks), 0);
}

TEST(RowSampler, RowNumbersBeyond32BitsStayExact) {
  // Rows from 2^31 on with small epochs: each epoch still has each block once, in another order
  // than 2^32 rows before.
  const RowSampler sampler(1'000, 10, 23);
  const std::int64_t epoch = (std::int64_t{1} << 40) / sampler.rows_per_epoch();
  auto positions = epoch_positions(sampler, epoch);
  const auto wrapped = epoch_positions(sampler, epoch & 0xFFFFFFFF);
  EXPECT_NE(positions, wrapped);
  std::sort(positions.begin(), positions.end());
  for (std::size_t i = 0; i + 1 < positions.size(); ++i)
    EXPECT_EQ(positions[i + 1] - positions[i], 10);
}

TEST(RowSampler, RefusesDataShorterThanARow) {
  EXPECT_EQ(RowSampler(65, 64, 0).position(5), 0);
  try {
    const RowSampler sampler(64, 64, 0);
    FAIL() << "64 tokens hold no row of 65";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("64 tokens"));
    EXPECT_THAT(error.what(), HasSubstr("needs 65"));
    EXPECT_THAT(error.what(), HasSubstr("--max-seq-len"));
  }
}

TEST(RowSampler, RefusesImpossibleRows) {
  EXPECT_THROW(static_cast<void>(RowSampler(1000, 10, 0).position(-1)), Error);
  EXPECT_THROW(RowSampler(1000, 0, 0), Error);
}

}  // namespace
}  // namespace muo::data
