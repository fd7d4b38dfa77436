// Compares figures of the articles on which the strategies are based with figures of this program:
// docs/strategies.md.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "model/gpt.h"
#include "optim/exposed_time.h"
#include "optim/sharded_step.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/tracing_rank.h"
#include "support/paths.h"

namespace muo::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A table of an article on which a strategy is based, and the corresponding figures of
// this program. Both are computed; those of this program from sharding plans and from the
// arena of a rank.
struct ArticleTable {
  std::string_view title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::string_view reason;  // reason for the differences
};
using Params = std::vector<ParamSpec>;

// Appends a parameter in the model's order; the backward pass completes them in reverse order.
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

// What a rank allocates for a step without a model, in fp32: the planned memory, and weights,
// gradients and optimizer state alone.
struct RankMemory {
  double planned = 0, weights = 0, gradients = 0, momentum = 0, adam = 0;
  [[nodiscard]] double state() const { return momentum + adam; }
  [[nodiscard]] double sum() const { return weights + gradients + state(); }
};
RankMemory memory_of(const Params& params, int world, const char* strategy,
                     optim::Shard shard = optim::Shard::kOptimizer) {
  const optim::ShardingPlan plan =
      optim::make_sharding_plan(params, world, strategy, {}, optim::Gather::kSimple,
                                optim::newton_schulz_forms().front(), shard);
  TracingRank tracing(0, world);
  Stream& compute = tracing.context().compute;
  TraceArena arena(0);
  optim::ShardedStep step(tracing.context(), plan, params, arena);
  const auto graph = compute.capture([&] {
    optim::ShardedStep::OpenStep open = step.begin();
    optim::ShardedStep::MicroStep pass = open.micro_step(0);
    for (std::size_t i = 0; i < params.size(); ++i)
      pass.weight_needed(i);
    for (std::size_t i = params.size(); i-- > 0;) {
      pass.gradient_needed(i);
      compute.zero(step.gradient(i));
      pass.gradient_ready(i);
    }
    open.finish();
  });
  std::map<MemoryCategory, double> bytes;
  for (const TensorSpec& spec : arena.specs())
    bytes[spec.category] += static_cast<double>(spec.shape.numel() * size_of(spec.dtype));
  const std::array<const GraphTrace*, 1> graphs = {&graph->trace()};
  return {static_cast<double>(plan_memory(arena, graphs).bytes), bytes[MemoryCategory::kWeights],
          bytes[MemoryCategory::kGradients], bytes[MemoryCategory::kMomentum],
          bytes[MemoryCategory::kAdamState]};
}

std::string percent(double share) { return fmt::format("{}%", std::lround(100 * share)); }

// --- "Distributed Muon", nanochat blog series 1.2: N devices, P bytes of matrices

constexpr std::array kWorlds = {2, 4, 8, 16, 64};

// Matrices so large that the variance of a row is negligible, and in a number that the
// largest world divides.
Params equal_matrices() {
  Params params;
  for (int i = 0; i < 64; ++i)
    add(params, {.name = fmt::format("h.{}.w", i), .shape = {1024, 1024}, .layer = i});
  return params;
}

ArticleTable dist_muon_memory() {
  ArticleTable out{
      .title =
          "\"Distributed Muon\" (nanochat blog series, 1.2): memory of a device, in units of P",
      .head = {"N", "DDP, article", "`ddp`", "DistMuon, article: 1 + 2 / N", "`block_cyclic`",
               "`--shard gradients`", "saved, article", "saved"},
      .rows = {},
      .reason =
          "Ours is what the memory plan of a step without a model allocates. Updates need room of "
          "their own until all ranks agree to commit them: P with `ddp`, and an N-th for an owner, "
          "which puts them where the gradients of others were. `ddp` also needs Newton-Schulz's "
          "workspace, which shares its memory with activations where there are some. Backward "
          "writes every matrix' gradient on every device before it can be reduced, so the second P "
          "remains; the article shards it. `--shard gradients` does so by reducing every "
          "micro-step: whole gradients alternate in the memory of two buckets, here of N matrices "
          "each, of 64."};
  const Params params = equal_matrices();
  const double p = bytes_of(params);
  for (const int n : kWorlds) {
    const double ddp = memory_of(params, n, "ddp").planned / p;
    const double owners = memory_of(params, n, "block_cyclic").planned / p;
    const double sharded =
        memory_of(params, n, "block_cyclic", optim::Shard::kGradients).planned / p;
    const double article = 1 + 2.0 / n;
    out.rows.push_back({std::to_string(n), "3", fmt::format("{:.2f}", ddp),
                        fmt::format("{:.2f}", article), fmt::format("{:.2f}", owners),
                        fmt::format("{:.2f}", sharded), percent(1 - article / 3),
                        percent(1 - std::min(owners, sharded) / ddp)});
  }
  return out;
}

ArticleTable dist_muon_traffic() {
  ArticleTable out{
      .title = "The same: bytes that a device sends and receives in a step, in units of P",
      .head = {"N", "sent, article: 2 / N", "received, article: 1 + 1 / N", "`block_cyclic`, each"},
      .rows = {},
      .reason =
          "A device's own part of the sum is P / N, but it must send every other device its share "
          "of theirs: k P in a reduce-scatter, with k = (N - 1) / N, and, as every other device "
          "wants what it updated, k P in an all-gather. It receives as much. Both grow with N, "
          "towards 2 P."};
  const Params params = equal_matrices();
  for (const int n : kWorlds) {
    const optim::ShardingPlan plan = optim::make_sharding_plan(params, n, "block_cyclic");
    // Each rank sends the same, so each receives what it sends.
    const std::vector<std::int64_t> sent = optim::plan_cost(plan, params).sent_bytes;
    EXPECT_EQ(std::ranges::min(sent), std::ranges::max(sent));
    out.rows.push_back(
        {std::to_string(n), fmt::format("{:.3f}", 2.0 / n), fmt::format("{:.3f}", 1 + 1.0 / n),
         fmt::format("{:.3f}", static_cast<double>(sent.front()) / bytes_of(params))});
  }
  return out;
}

// nanochat's depth 20 at the time of the article: vocabulary 65,536, no value embeddings.
Params depth_20() {
  return model::gpt_parameters({.vocab_size = 65536,
                                .n_layer = 20,
                                .n_head = 10,
                                .n_kv_head = 10,
                                .n_embd = 1280,
                                .seq_len = 2048});
}

ArticleTable dist_muon_example() {
  const Params params = depth_20();
  const double millions = bytes_of(params) / 4e6;
  const auto gb = [](double bytes) { return fmt::format("{:.2f}", bytes / 1e9); };
  const RankMemory ddp = memory_of(params, 8, "ddp");
  const RankMemory owners = memory_of(params, 8, "balanced");
  const double sharded = memory_of(params, 8, "balanced", optim::Shard::kGradients).planned;
  return {
      .title = "The same: nanochat's depth 20 on 8 devices, GB per device",
      .head = {"", "article, DDP", "`ddp`", "article, DistMuon", "`balanced`",
               "`--shard gradients`"},
      .rows = {{"parameters", "270M", fmt::format("{:.0f}M", millions), "270M",
                fmt::format("{:.0f}M", millions), fmt::format("{:.0f}M", millions)},
               {"GB", "1.62 (bf16)", gb(ddp.planned) + " (fp32)", "0.68 (bf16)",
                gb(owners.planned) + " (fp32)", gb(sharded) + " (fp32)"},
               {"saved", "", "", "58%", percent(1 - owners.planned / ddp.planned),
                percent(1 - sharded / ddp.planned)}},
      .reason =
          "nanochat's model of this depth has 560,988,160 parameters (`muograph plan`), of which "
          "168M are the embeddings and the head, with two moments each. The article's other "
          "example, a billion parameters on 8 GPUs (6 GB and 2.5 GB), is its row N = 8 above."};
}

ArticleTable dist_muon_scaling() {
  ArticleTable out{
      .title = "The same: efficiency of N devices that share 524,288 tokens, depth 20",
      .head = {"N", "article", "`balanced`, 8 x 400 Gb/s per box", "`balanced`, 400 Gb/s per box"},
      .rows = {},
      .reason =
          "The article does not say how it got its shares. Ours are the time of the micro-steps "
          "over that of the step, as `plan --boxes` predicts them: boxes of 8 H100s at 182,300 "
          "tokens/s each, 370 GB/s within a box, 20 us a collective, Newton-Schulz at 628 TFLOP/s. "
          "On 512 devices each has 1,024 tokens, 6 ms of work, beside more than twice the model's "
          "size in gradients and weights on the network: more devices need a larger batch."};
  const Params params = depth_20();
  for (const auto& [n, article] :
       {std::pair{8, "90%"}, std::pair{64, "75%"}, std::pair{512, "40%"}}) {
    const optim::ShardingPlan plan =
        optim::make_sharding_plan(params, n, "balanced", {}, optim::Gather::kPipelined);
    std::vector<std::string> row = {std::to_string(n), article};
    for (const double box : {400e9, 50e9}) {
      const optim::MachineRates rates{.link_bytes_per_s = 370e9,
                                      .ranks_per_box = 8,
                                      .box_bytes_per_s = box,
                                      .link_latency_s = 20e-6,
                                      .gemm_flops_per_s = 628e12,
                                      .memory_bytes_per_s = 2.55e12,
                                      .step_s = 524288.0 / n / 182'300};
      const double update = optim::exposed_time(plan, params, rates).update_s;
      row.push_back(percent(rates.step_s / (rates.step_s + update)));
    }
    out.rows.push_back(row);
  }
  return out;
}

// --- "DistMuonAdamW": GPT-2 of 124M parameters

Params gpt2() {
  Params params;
  add(params, {.name = "wte", .shape = {50257, 768}, .role = ParamRole::kEmbedding});
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
  return {
      .title = "\"DistMuonAdamW\" (124M parameters on 4 GPUs, fp32): MB per device",
      .head = {"", "article, DDP", "`ddp`", "article, sharded", "`stacked`"},
      .rows = {{"weights", "496", mb(ddp.weights), "496", mb(sharded.weights)},
               {"optimizer state", "544", mb(ddp.state()), "136", mb(sharded.state())},
               {"gradients", "not counted", mb(ddp.gradients), "not counted",
                mb(sharded.gradients)},
               {"sum", "1040", mb(ddp.sum()), "632", mb(sharded.sum())},
               {"saved", "", "", percent(1 - 632.0 / 1040),
                percent(1 - sharded.sum() / ddp.sum())}},
      .reason =
          "GPT-2 of this size, without positional embeddings as in the article, has 84.9M elements "
          "in matrices, with one fp32 momentum each, and 38.6M in its tied embedding, with two "
          "fp32 moments each: 340 + 309 MB, and half a MB of factored variances. Gradients are "
          "there while backward runs."};
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
  return {dist_muon_memory(),  dist_muon_traffic(), dist_muon_example(),
          dist_muon_scaling(), dist_muon_adamw(),   parallel_muon()};
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
// momentum. Whole gradients make it P (2 + 1 / N), in whose memory an owner's updates fit. With DDP
// updates add a fourth P to the article's three.
TEST(ArticleTables, MemoryOfDistMuonIncludesGradientsAndUpdates) {
  EXPECT_THAT(article_tables().at(0).rows,
              ElementsAre(ElementsAre("2", "3", "4.29", "2.00", "2.60", "2.60", "33%", "39%"),
                          ElementsAre("4", "3", "4.29", "1.50", "2.28", "1.91", "50%", "55%"),
                          ElementsAre("8", "3", "4.29", "1.25", "2.14", "1.64", "58%", "62%"),
                          ElementsAre("16", "3", "4.29", "1.12", "2.08", "1.70", "63%", "60%"),
                          ElementsAre("64", "3", "4.29", "1.03", "2.03", "2.05", "66%", "53%")));
}

// The article sends P / N in each collective; the correct amount is 2 (N - 1) / N of P.
TEST(ArticleTables, TrafficOfDistMuonGrowsWithItsDevices) {
  EXPECT_THAT(article_tables().at(1).rows,
              ElementsAre(ElementsAre("2", "1.000", "1.500", "1.000"),
                          ElementsAre("4", "0.500", "1.250", "1.500"),
                          ElementsAre("8", "0.250", "1.125", "1.750"),
                          ElementsAre("16", "0.125", "1.062", "1.875"),
                          ElementsAre("64", "0.031", "1.016", "1.969")));
}

TEST(ArticleTables, NanochatsDepth20HasTwiceTheArticlesParameters) {
  EXPECT_EQ(bytes_of(depth_20()), 4.0 * 560'988'160);
  EXPECT_THAT(article_tables().at(2).rows,
              ElementsAre(ElementsAre("parameters", "270M", "561M", "270M", "561M", "561M"),
                          ElementsAre("GB", "1.62 (bf16)", "9.06 (fp32)", "0.68 (bf16)",
                                      "4.90 (fp32)", "3.74 (fp32)"),
                          ElementsAre("saved", "", "", "58%", "46%", "59%")));
}

TEST(ArticleTables, AFixedBatchDoesNotScaleTo512Devices) {
  EXPECT_THAT(article_tables().at(3).rows, ElementsAre(ElementsAre("8", "90%", "99%", "99%"),
                                                       ElementsAre("64", "75%", "80%", "36%"),
                                                       ElementsAre("512", "40%", "7%", "1%")));
}

// 496 MB of weights, and 544 MB of state or, sharded, a quarter of it.
TEST(ArticleTables, StateOfGpt2IsLargerThanInTheArticle) {
  EXPECT_THAT(article_tables().at(4).rows,
              ElementsAre(ElementsAre("weights", "496", "494", "496", "494"),
                          ElementsAre("optimizer state", "544", "649", "136", "162"),
                          ElementsAre("gradients", "not counted", "494", "not counted", "494"),
                          ElementsAre("sum", "1040", "1637", "632", "1151"),
                          ElementsAre("saved", "", "", "39%", "30%")));
}

TEST(ArticleTables, ParallelMuonsRateIsPerCard) {
  EXPECT_THAT(article_tables().at(5).rows,
              ElementsAre(ElementsAre("per card, of 4", "151", "151.3"),
                          ElementsAre("per device, of 8", "", "75.7")));
}

// Normalises white space, because documents may break lines anywhere.
std::string words_of(std::istream&& text) {
  std::string out;
  for (std::string word; text >> word;)
    out += word + " ";
  return out;
}

TEST(ArticleTables, AreInTheDocumentation) {
  const std::string docs = words_of(std::ifstream(source_directory() + "/docs/strategies.md"));
  for (const ArticleTable& table : article_tables()) {
    const std::string printed = std::string(table.title) + ":\n\n" + markdown(table);
    EXPECT_THAT(docs, HasSubstr(words_of(std::istringstream(printed))))
        << "docs/strategies.md: put this in: " << printed;
  }
}

}  // namespace
}  // namespace muo::test
