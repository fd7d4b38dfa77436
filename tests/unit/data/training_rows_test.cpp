#include "data/training_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "base/check.h"
#include "data/document_index.h"
#include "data/held_out_rows.h"
#include "data/row_packer.h"
#include "data/sampler.h"

namespace muo::data {
namespace {

constexpr std::int32_t kFirst = -1;  // begins documents

class Tokens final : public TokenData {
 public:
  explicit Tokens(std::vector<std::int32_t> tokens) : tokens_(std::move(tokens)) {}
  [[nodiscard]] std::int64_t size() const override { return std::ssize(tokens_); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    MUO_CHECK(begin >= 0 && begin + std::ssize(out) <= size());
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<std::int32_t> tokens_;
};

// Documents of 1 to `most` tokens: kFirst, then repetitions of the document's number.
std::vector<std::int32_t> documents(std::int32_t count, std::size_t most) {
  std::mt19937 random(7);
  std::vector<std::int32_t> out;
  for (std::int32_t i = 0; i < count; ++i) {
    out.push_back(kFirst);
    out.insert(out.end(), random() % most, i);
  }
  return out;
}

Corpus packed_corpus(std::int32_t count, std::size_t most) {
  Corpus corpus;
  corpus.train = std::make_unique<Tokens>(documents(count, most));
  corpus.train_documents = std::make_shared<const DocumentIndex>(*corpus.train, kFirst, 2);
  return corpus;
}

using Row = std::vector<std::int32_t>;

Row read(TrainingRows& rows, std::int64_t seq_len, std::int64_t n) {
  Row row(static_cast<std::size_t>(seq_len) + 1);
  rows.read(n, row);
  return row;
}

TEST(DocumentIndex, FindsEveryBeginning) {
  for (const int threads : {1, 3}) {
    const Tokens some({4, 4, kFirst, 7, 7, 7, kFirst, kFirst, 9});
    const DocumentIndex index(some, kFirst, threads);
    ASSERT_EQ(index.size(), 3);
    EXPECT_EQ(index[0].begin, 2);
    EXPECT_EQ(index[0].count, 4);
    EXPECT_EQ(index[1].begin, 6);
    EXPECT_EQ(index[1].count, 1);
    EXPECT_EQ(index[2].begin, 7);
    EXPECT_EQ(index[2].count, 2);
    EXPECT_EQ(DocumentIndex(Tokens({1, 2, 3}), kFirst, threads).size(), 0);
  }
  // Longer than one task of a thread, with documents that begin on both sides of every boundary.
  std::vector<std::int32_t> many(9'000'000, 5);
  std::vector<std::int64_t> want;
  for (std::int64_t at = 8191; at < std::ssize(many); at += 8192) {
    for (const std::int64_t begin : {at, at + 1}) {
      if (begin >= std::ssize(many)) continue;
      many[static_cast<std::size_t>(begin)] = kFirst;
      want.push_back(begin);
    }
  }
  const DocumentIndex index(Tokens(std::move(many)), kFirst, 3);
  ASSERT_EQ(index.size(), std::ssize(want));
  for (std::int64_t i = 0; i < index.size(); ++i)
    ASSERT_EQ(index[i].begin, want[static_cast<std::size_t>(i)]);
}

TEST(TrainingRows, ContiguousRowsAreTheSamplers) {
  Corpus corpus;
  corpus.train = std::make_unique<Tokens>(documents(200, 30));
  const std::unique_ptr<TrainingRows> rows = make_training_rows(corpus, 9, 5);
  const RowSampler sampler(corpus.train->size(), 9, 5);
  for (std::int64_t n = 0; n < 800; ++n) {
    Row want(10);
    corpus.train->read(sampler.position(n), want);
    ASSERT_EQ(read(*rows, 9, n), want);
  }
}

TEST(TrainingRows, PackedRowsBeginDocumentsWhoseTokensStayTogether) {
  const Corpus corpus = packed_corpus(2'000, 60);
  const std::unique_ptr<TrainingRows> rows = make_training_rows(corpus, 40, 1);
  std::map<std::int32_t, int> seen;  // by document
  for (std::int64_t n = 0; n < 1500; ++n) {
    const Row row = read(*rows, 40, n);
    ASSERT_EQ(row[0], kFirst);
    for (std::size_t i = 1; i < row.size(); ++i) {
      if (row[i] == kFirst) continue;
      if (row[i - 1] == kFirst)
        ++seen[row[i]];
      else
        ASSERT_EQ(row[i], row[i - 1]);  // a piece has tokens of one document
    }
  }
  EXPECT_GT(seen.size(), 1'000U);
  for (const auto& [document, times] : seen)
    EXPECT_LE(times, 2) << document;
}

TEST(TrainingRows, PackedRowsDependOnlyOnTheirNumber) {
  const Corpus corpus = packed_corpus(300, 50);
  const std::unique_ptr<TrainingRows> all = make_training_rows(corpus, 32, 9);
  std::vector<Row> want;
  for (std::int64_t n = 0; n < 600; ++n)  // several epochs
    want.push_back(read(*all, 32, n));
  for (const std::int64_t world : {2, 3})
    for (std::int64_t rank = 0; rank < world; ++rank) {
      const std::unique_ptr<TrainingRows> own = make_training_rows(corpus, 32, 9);
      for (std::int64_t n = rank; n < std::ssize(want); n += world)
        ASSERT_EQ(read(*own, 32, n), want[static_cast<std::size_t>(n)]);
    }
  const std::unique_ptr<TrainingRows> resumed = make_training_rows(corpus, 32, 9);
  for (std::int64_t n = 431; n < std::ssize(want); ++n)
    ASSERT_EQ(read(*resumed, 32, n), want[static_cast<std::size_t>(n)]);
  EXPECT_THROW(read(*resumed, 32, 20), Error);  // backwards
  const std::unique_ptr<TrainingRows> other = make_training_rows(corpus, 32, 10);
  EXPECT_NE(read(*other, 32, 0), want[0]);
}

// Whichever waiting documents are chosen, none is drawn again before all have been drawn.
TEST(TrainingRows, EveryEpochHasEveryDocument) {
  constexpr std::int64_t kDocuments = 1'500;
  const Corpus corpus = packed_corpus(kDocuments, 20);
  const std::unique_ptr<TrainingRows> rows = make_training_rows(corpus, 31, 2);
  std::map<std::int32_t, std::int64_t> seen;
  std::int64_t pieces = 0;
  for (std::int64_t n = 0; n < 5'000; ++n) {
    const Row row = read(*rows, 31, n);
    pieces += std::ranges::count(row, kFirst);
    for (std::size_t i = 1; i < row.size(); ++i)
      if (row[i - 1] == kFirst && row[i] != kFirst) ++seen[row[i]];
  }
  const std::int64_t epochs = (pieces + RowPacker::kWaiting + RowPacker::kRefill) / kDocuments + 1;
  EXPECT_GT(epochs, 10);
  for (const auto& [document, times] : seen)
    EXPECT_LE(times, epochs) << document;
  // Only those without a number are missing, which are one in twenty.
  EXPECT_NEAR(static_cast<double>(seen.size()), 0.95 * kDocuments, 0.02 * kDocuments);
}

TEST(TrainingRows, TheShareThatPackingUsesIsMeasured) {
  // Each row is exactly one document, so nothing is cropped.
  Corpus whole;
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 500; ++i) {
    tokens.push_back(kFirst);
    tokens.insert(tokens.end(), 9, i);
  }
  whole.train = std::make_unique<Tokens>(tokens);
  whole.train_documents = std::make_shared<const DocumentIndex>(*whole.train, kFirst, 1);
  EXPECT_EQ(measure_packing(whole, 9, 1).share, 1.0);
  // Each row has 8 of the 10 tokens of a document.
  EXPECT_EQ(measure_packing(whole, 7, 1).share, 0.8);
  // Each row has one document and two of the ten tokens of the next one: 12 of 20.
  EXPECT_NEAR(measure_packing(whole, 11, 1).share, 0.6, 1e-12);
}

TEST(HeldOutRows, BlocksHaveEveryTokenExceptTheFirstAsATarget) {
  for (const std::int64_t seq_len : {1, 7, 100}) {
    std::vector<std::int32_t> tokens(100);
    std::ranges::generate(tokens, [i = 0]() mutable { return i++; });
    const Tokens data(tokens);
    const HeldOutRows rows(data, nullptr, seq_len);
    Row targets;
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      Row row(static_cast<std::size_t>(seq_len) + 1);
      const std::int64_t count = rows.read(i, row);
      ASSERT_GE(count, 2);
      ASSERT_EQ(count == seq_len + 1 || i + 1 == rows.size(), true);
      targets.insert(targets.end(), row.begin() + 1, row.begin() + count);
    }
    tokens.erase(tokens.begin());
    EXPECT_EQ(targets, tokens);
  }
}

TEST(HeldOutRows, PackedRowsUseEveryDocumentOnce) {
  const Tokens data(documents(2'500, 30));
  const DocumentIndex index(data, kFirst, 1);
  const HeldOutRows rows(data, &index, 40);
  std::multiset<std::int32_t> seen;
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    Row row(41);
    const std::int64_t count = rows.read(i, row);
    ASSERT_TRUE(count == 41 || i + 1 == rows.size());
    ASSERT_EQ(row[0], kFirst);
    for (std::size_t t = 1; t < static_cast<std::size_t>(count); ++t)
      if (row[t - 1] == kFirst && row[t] != kFirst) seen.insert(row[t]);
  }
  for (const std::int32_t document : seen)
    ASSERT_EQ(seen.count(document), 1U);
  EXPECT_GT(seen.size(), 2'300U);  // except those of one token, or cropped to one token
}

}  // namespace
}  // namespace muo::data
