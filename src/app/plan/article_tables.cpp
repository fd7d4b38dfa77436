#include "app/plan/article_tables.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <map>

#include "optim/sharded_step.h"
#include "runtime/tracing_rank.h"

namespace muo {
namespace {

using Params = std::vector<ParamSpec>;

// Appends a parameter in the order of the model; backward completes them from the last to the
// first.
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

// What rank 0 of a strategy holds, in fp32.
struct RankMemory {
  double weights = 0, gradients = 0, momentum = 0, adam = 0;
  [[nodiscard]] double state() const { return momentum + adam; }
  [[nodiscard]] double sum() const { return weights + gradients + state(); }
};
RankMemory memory_of(const Params& params, int world, const char* strategy) {
  const ShardingPlan plan = make_sharding_plan(params, world, strategy);
  TracingRank tracing(0, world);
  TraceArena arena(0);
  const ShardedStep step(tracing.context(), plan, params, arena);
  std::map<MemoryCategory, double> bytes;
  for (const TensorSpec& spec : arena.specs())
    bytes[spec.category] += static_cast<double>(spec.shape.numel() * size_of(spec.dtype));
  return {bytes[MemoryCategory::kWeights], bytes[MemoryCategory::kGradients],
          bytes[MemoryCategory::kMomentum], bytes[MemoryCategory::kAdamState]};
}

std::string percent(double saved) { return fmt::format("{}%", std::lround(100 * saved)); }

// --- "Distributed Muon", nanochat blog series 1.2: N devices, P bytes of matrices

constexpr std::array kWorlds = {2, 4, 8, 16, 64};

// So large that a row's variance is nothing beside it, and as many as the largest world divides.
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
    const ShardingPlan plan = make_sharding_plan(params, n, "block_cyclic");
    const auto sent = static_cast<double>(plan_cost(plan, params).sent_bytes.front());
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

}  // namespace

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

std::string articles_text() {
  std::string out;
  for (const ArticleTable& table : article_tables())
    out += fmt::format("{}{}:\n\n{}", out.empty() ? "" : "\n", table.title, markdown(table));
  return out;
}

std::string articles_json() {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const ArticleTable& table : article_tables())
    out.push_back({{"title", table.title},
                   {"head", table.head},
                   {"rows", table.rows},
                   {"reason", table.reason}});
  return out.dump(2) + "\n";
}

}  // namespace muo
