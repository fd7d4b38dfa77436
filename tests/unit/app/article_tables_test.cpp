// What articles that this program's strategies come from say, and what holds.
#include "app/plan/article_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "support/paths.h"

namespace muo::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "Distributed Muon" gives P (1 + 2 / N) a device: weights, and N-th parts of gradients and
// momentum. Whole gradients make it P (2 + 1 / N). DDP's 3 P holds.
TEST(ArticleTables, MemoryOfDistMuonIncludesWholeGradients) {
  EXPECT_THAT(article_tables().at(0).rows,
              ElementsAre(ElementsAre("2", "6", "6", "4", "5", "33%", "17%"),
                          ElementsAre("4", "12", "12", "6", "9", "50%", "25%"),
                          ElementsAre("8", "24", "24", "10", "17", "58%", "29%"),
                          ElementsAre("16", "48", "48", "18", "33", "63%", "31%"),
                          ElementsAre("64", "192", "192", "66", "129", "66%", "33%")));
}

// It sends P / N in each of its collectives; 2 (N - 1) / N of P holds.
TEST(ArticleTables, TrafficOfDistMuonGrowsWithItsDevices) {
  EXPECT_THAT(article_tables().at(1).rows,
              ElementsAre(ElementsAre("2", "1.000", "1.000"), ElementsAre("4", "0.500", "1.500"),
                          ElementsAre("8", "0.250", "1.750"), ElementsAre("16", "0.125", "1.875"),
                          ElementsAre("64", "0.031", "1.969")));
}

// 496 MB of weights and 544 MB of state, a quarter of it when sharded.
TEST(ArticleTables, StateOfGpt2IsLargerThanTold) {
  EXPECT_THAT(article_tables().at(2).rows,
              ElementsAre(ElementsAre("weights", "496", "497", "496", "497"),
                          ElementsAre("optimizer state", "544", "655", "136", "164"),
                          ElementsAre("gradients", "not counted", "497", "not counted", "497"),
                          ElementsAre("sum", "1040", "1650", "632", "1158"),
                          ElementsAre("saved", "", "", "39%", "30%")));
}

TEST(ArticleTables, ParallelMuonsRateIsOfACard) {
  EXPECT_THAT(article_tables().at(3).rows,
              ElementsAre(ElementsAre("per card, of 4", "151", "151.3"),
                          ElementsAre("per device, of 8", "", "75.7")));
}

// Documents break their lines where they are full.
std::string words_of(std::istream&& text) {
  std::string out;
  for (std::string word; text >> word;)
    out += word + " ";
  return out;
}

TEST(ArticleTables, StandInTheDocumentation) {
  const std::string docs = words_of(std::ifstream(source_directory() + "/docs/strategies.md"));
  for (const ArticleTable& table : article_tables()) {
    const std::string printed = std::string(table.title) + ":\n\n" + markdown(table);
    EXPECT_THAT(docs, HasSubstr(words_of(std::istringstream(printed))))
        << "docs/strategies.md: put in what `muograph plan --articles` prints";
  }
}

}  // namespace
}  // namespace muo::test
