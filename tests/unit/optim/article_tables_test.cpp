// Compares figures of the articles behind this program's strategies with this program's:
// docs/strategies.md.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "optim/sharded_step.h"
#include "runtime/tracing_rank.h"
#include "support/paths.h"

namespace muo::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A table of an article behind a strategy, and the corresponding figures of this program. Both are
// computed, this program's from sharding plans and from a rank's arena.
struct ArticleTable {
  std::string_view title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::string_view reason;  // reason for the differences
};
using Params = std::vector<ParamSpec>;

// Appends a parameter in the model's order; backward completes them in reverse.
void add(Params& params, ParamSpec param) {
  param.use = static_cast<int>(params.size());
  param.ready = -param.use;
  params.push_back(std::move(param));
}

double bytes_of(const Params& params) {
  double elements = 0;
  for (const ParamSpec& param : params)
    elements += static_cast<double>(param.shape.numel());
  return 4 * elements;
}

// Bytes that rank 0 of a strategy holds, in fp32.
struct RankMemory {
  double weights = 0, gradients = 0, momentum = 0, adam = 0;
  [[nodiscard]] double state() const { return momentum + adam; }
  [[nodiscard]] double sum() const { return weights + gradients + state(); }
};
RankMemory memory_of(const Params& params, int world, const char* strategy) {
  const optim::ShardingPlan plan = optim::make_sharding_plan(params, world, strategy);
  TracingRank tracing(0, world);
  TraceArena arena(0);
  const optim::ShardedStep step(tracing.context(), plan, params, arena);
  std::map<MemoryCategory, double> bytes;
  for (const TensorSpec& spec : arena.specs())
    bytes[spec.category] += static_cast<double>(spec.shape.numel() * size_of(spec.dtype));
  return {bytes[MemoryCategory::kWeights], bytes[MemoryCategory::kGradients],
          bytes[MemoryCategory::kMomentum], bytes[MemoryCategory::kAdamState]};
}

std::string percent(double saved) { return fmt::format("{}%", std::lround(100 * saved)); }

// --- "Distributed Muon", nanochat blog series 1.2: N devices, P bytes of matrices

constexpr std::array kWorlds = {2, 4, 8, 16, 64};

// So large that a row's variance is negligible, and a number of them that the largest world
// divides.
Params equal_matrices() {
  Params params;
  for (int i = 0; i < 64; ++i)
    add(params, {.name = fmt::format("h.{}.w", i), .shape = {1024, 1024}, .layer = i});
  return params;
}

ArticleTable dist_muon_memory() {
  ArticleTable out{
      .title =
          "\"Distributed Muon\" (nanochat blog series, 1.2): memory of N devices, in units of P",
      .head = {"N", "DDP, article", "`ddp`", "DistMuon, article: P (N + 2)", "`block_cyclic`",
               "saved, article", "saved"},
      .rows = {},
      .reason =
          "The article shards gradients too. But backward writes every matrix' gradient on every "
          "device before it can be reduced, so a device holds P (2 + 1 / N) of weights, gradients "
          "and momentum; the reduced part needs room beside it (another P / N, shared with other "
          "tensors of the step). Less is held only where a gradient is freed after its reduction."};
  const Params params = equal_matrices();
  const double p = bytes_of(params);
  for (const int n : kWorlds) {
    const double ddp = n * memory_of(params, n, "ddp").sum() / p;
    const double sharded = n * memory_of(params, n, "block_cyclic").sum() / p;
    out.rows.push_back({std::to_string(n), std::to_string(3 * n), fmt::format("{:.0f}", ddp),
                        std::to_string(n + 2), fmt::format("{:.0f}", sharded),
                        percent(1 - (n + 2) / (3.0 * n)), percent(1 - sharded / ddp)});
  }
  return out;
}

ArticleTable dist_muon_traffic() {
  ArticleTable out{.title = "The same: bytes that a device sends in a step, in units of P",
                   .head = {"N", "article: 2 / N", "`block_cyclic`"},
                   .rows = {},
                   .reason =
                       "A device's own part of the sum is P / N, but it must send every other "
                       "device its share of theirs: k P in a reduce-scatter, with k = (N - 1) "
                       "/ N, and, as every other device wants what it updated, k P in an "
                       "all-gather. It grows with N, towards 2 P."};
  const Params params = equal_matrices();
  for (const int n : kWorlds) {
    const optim::ShardingPlan plan = optim::make_sharding_plan(params, n, "block_cyclic");
    const auto sent = static_cast<double>(optim::plan_cost(plan, params).sent_bytes.front());
    out.rows.push_back({std::to_string(n), fmt::format("{:.3f}", 2.0 / n),
                        fmt::format("{:.3f}", sent / bytes_of(params))});
  }
  return out;
}

// --- "DistMuonAdamW": GPT-2 of 124M parameters

Params gpt2() {
  Params params;
  add(params, {.name = "wte", .shape = {50257, 768}, .role = ParamRole::kEmbedding});
  add(params, {.name = "wpe", .shape = {1024, 768}, .role = ParamRole::kEmbedding});
  for (int l = 0; l < 12; ++l) {
    const std::string layer = fmt::format("h.{}.", l);
    add(params, {.name = layer + "attn.c_attn", .shape = {2304, 768}, .layer = l});
    add(params, {.name = layer + "attn.c_proj", .shape = {768, 768}, .layer = l});
    add(params, {.name = layer + "mlp.c_fc", .shape = {3072, 768}, .layer = l});
    add(params, {.name = layer + "mlp.c_proj", .shape = {768, 3072}, .layer = l});
  }
  return params;
}

ArticleTable dist_muon_adamw() {
  const RankMemory ddp = memory_of(gpt2(), 4, "ddp");
  const RankMemory sharded = memory_of(gpt2(), 4, "stacked");
  const auto mb = [](double bytes) { return fmt::format("{:.0f}", bytes / 1e6); };
  return {.title = "\"DistMuonAdamW\" (124M parameters on 4 GPUs, fp32): MB per device",
          .head = {"", "article, DDP", "`ddp`", "article, sharded", "`stacked`"},
          .rows = {{"weights", "496", mb(ddp.weights), "496", mb(sharded.weights)},
                   {"optimizer state", "544", mb(ddp.state()), "136", mb(sharded.state())},
                   {"gradients", "not counted", mb(ddp.gradients), "not counted",
                    mb(sharded.gradients)},
                   {"sum", "1040", mb(ddp.sum()), "632", mb(sharded.sum())},
                   {"saved", "", "", percent(1 - 632.0 / 1040),
                    percent(1 - sharded.sum() / ddp.sum())}},
          .reason =
              "GPT-2 of this size has 84.9M elements in matrices, with one fp32 momentum each, and "
              "39.4M in embeddings, with two fp32 moments each: 340 + 315 MB, and half a MB of "
              "factored variances. Gradients are there while backward runs."};
}

// --- "Parallelize Muon with FSDP2"

ArticleTable parallel_muon() {
  constexpr double kTflop = 847.45;
  constexpr double kSeconds = 1.4;
  const auto rate = [](int by) { return fmt::format("{:.1f}", kTflop / kSeconds / by); };
  return {.title = "\"Parallelize Muon with FSDP2\" (10B model, 847.45 TFLOP in 1.4 s): TFLOP/s",
          .head = {"", "article", "of its numbers"},
          .rows = {{"per card, of 4", "151", rate(4)}, {"per device, of 8", "", rate(8)}},
          .reason =
              "A card is two devices that compute and communicate as two GPUs. `muograph bench "
              "optimizer` divides by devices."};
}

std::vector<ArticleTable> article_tables() {
  return {dist_muon_memory(), dist_muon_traffic(), dist_muon_adamw(), parallel_muon()};
}

std::string markdown(const ArticleTable& table) {
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (const std::string& cell : cells)
      out += cell.empty() ? "| " : fmt::format("| {} ", cell);
    out += "|\n";
  };
  line(table.head);
  for (std::size_t i = 0; i < table.head.size(); ++i)
    out += "|---";
  out += "|\n";
  for (const auto& row : table.rows)
    line(row);
  return out + fmt::format("\n{}\n", table.reason);
}

// "Distributed Muon" gives P (1 + 2 / N) per device: weights, and an N-th of gradients and
// momentum. Whole gradients make it P (2 + 1 / N). Its 3 P for DDP is correct.
TEST(ArticleTables, MemoryOfDistMuonIncludesWholeGradients) {
  EXPECT_THAT(article_tables().at(0).rows,
              ElementsAre(ElementsAre("2", "6", "6", "4", "5", "33%", "17%"),
                          ElementsAre("4", "12", "12", "6", "9", "50%", "25%"),
                          ElementsAre("8", "24", "24", "10", "17", "58%", "29%"),
                          ElementsAre("16", "48", "48", "18", "33", "63%", "31%"),
                          ElementsAre("64", "192", "192", "66", "129", "66%", "33%")));
}

// The article has P / N sent in each collective; the correct amount is 2 (N - 1) / N of P.
TEST(ArticleTables, TrafficOfDistMuonGrowsWithItsDevices) {
  EXPECT_THAT(article_tables().at(1).rows,
              ElementsAre(ElementsAre("2", "1.000", "1.000"), ElementsAre("4", "0.500", "1.500"),
                          ElementsAre("8", "0.250", "1.750"), ElementsAre("16", "0.125", "1.875"),
                          ElementsAre("64", "0.031", "1.969")));
}

// 496 MB of weights, and 544 MB of state or, sharded, a quarter of it.
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

// Normalises white space, as documents break lines anywhere.
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
        << "docs/strategies.md: put this in: " << printed;
  }
}

}  // namespace
}  // namespace muo::test
