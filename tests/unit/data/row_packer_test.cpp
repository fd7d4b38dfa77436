#include "data/row_packer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

namespace muo::data {
namespace {

bool equal(std::span<const TokenSpan> a, std::span<const TokenSpan> b) {
  return std::ranges::equal(a, b, [](const TokenSpan& x, const TokenSpan& y) {
    return std::tie(x.begin, x.count) == std::tie(y.begin, y.count);
  });
}

// nanochat's algorithm: a list of documents in order of arrival, searched from its beginning.
class List {
 public:
  List(std::int64_t row_tokens, std::vector<TokenSpan> documents)
      : row_tokens_(row_tokens), documents_(std::move(documents)) {}

  std::vector<TokenSpan> next_row() {
    std::vector<TokenSpan> row;
    for (std::int64_t left = row_tokens_; left > 0;) {
      while (list_.size() < 1000 && at_ < documents_.size())
        for (int i = 0; i < 128 && at_ < documents_.size(); ++i)
          list_.push_back(documents_[at_++]);
      if (list_.empty()) break;
      std::optional<std::size_t> best;
      std::size_t shortest = 0;
      for (std::size_t i = 0; i < list_.size(); ++i) {
        const std::int64_t count = list_[i].count;
        if (count <= left && (!best || count > list_[*best].count)) best = i;
        if (count < list_[shortest].count) shortest = i;
      }
      const std::size_t chosen = best.value_or(shortest);
      const std::int64_t count = std::min(left, list_[chosen].count);
      row.push_back({.begin = list_[chosen].begin, .count = count});
      list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(chosen));
      left -= count;
    }
    return row;
  }

 private:
  std::int64_t row_tokens_;
  std::vector<TokenSpan> documents_, list_;
  std::size_t at_ = 0;
};

std::vector<TokenSpan> documents_of(std::size_t count, std::int64_t median, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> lengths(std::log(static_cast<double>(median)), 1.0);
  std::vector<TokenSpan> out;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto tokens = std::max<std::int64_t>(1, std::llround(lengths(random)));
    out.push_back({.begin = begin, .count = tokens});
    begin += tokens;
  }
  return out;
}

RowPacker packer_of(std::int64_t row_tokens, const std::vector<TokenSpan>& documents) {
  return {row_tokens, [&documents, i = std::size_t{0}]() mutable {
            return i < documents.size() ? std::optional(documents[i++]) : std::nullopt;
          }};
}

TEST(RowPacker, ChoosesTheDocumentsThatNanochatDoes) {
  unsigned seed = 0;
  for (const std::int64_t row_tokens : {1, 2, 17, 257, 2049})
    for (const std::int64_t median : {1, 10, 400, 5'000}) {
      const std::vector<TokenSpan> documents = documents_of(3'000, median, ++seed);
      RowPacker packer = packer_of(row_tokens, documents);
      List list(row_tokens, documents);
      for (int row = 0;; ++row) {
        const std::vector<TokenSpan> want = list.next_row();
        ASSERT_TRUE(equal(packer.next_row(), want)) << row_tokens << " " << median << " " << row;
        if (want.empty()) break;
      }
    }
}

TEST(RowPacker, AmongEqualDocumentsTheOldestComesFirst) {
  std::vector<TokenSpan> documents;
  for (std::int64_t i = 0; i < 5'000; ++i)
    documents.push_back({.begin = 10 * i, .count = 10});
  RowPacker packer = packer_of(20, documents);
  for (std::int64_t row = 0; row < 2'500; ++row) {
    const std::span<const TokenSpan> pieces = packer.next_row();
    ASSERT_EQ(pieces.size(), 2U);
    ASSERT_EQ(pieces[0].begin, 20 * row);
    ASSERT_EQ(pieces[1].begin, 20 * row + 10);
  }
  EXPECT_TRUE(packer.next_row().empty());
}

TEST(RowPacker, CountsWhatItCrops) {
  const std::vector<TokenSpan> documents = {{0, 5}, {5, 4}, {9, 30}};
  RowPacker packer = packer_of(12, documents);
  // The documents of 5 and 4 tokens fit, and 3 tokens of the one with 30 fill the row.
  EXPECT_TRUE(equal(packer.next_row(), std::vector<TokenSpan>{{0, 5}, {5, 4}, {9, 3}}));
  EXPECT_EQ(packer.packed_tokens(), 12);
  EXPECT_EQ(packer.document_tokens(), 39);
  EXPECT_TRUE(packer.next_row().empty());
}

TEST(RowPacker, TheLastRowMayBeShort) {
  const std::vector<TokenSpan> documents = {{0, 5}, {5, 4}};
  RowPacker packer = packer_of(12, documents);
  EXPECT_TRUE(equal(packer.next_row(), documents));
  EXPECT_TRUE(packer.next_row().empty());
  EXPECT_TRUE(packer.next_row().empty());
}

}  // namespace
}  // namespace muo::data
