#include "app/report/plan_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "app/report/prediction.h"
#include "app/train/backend.h"
#include "app/train/run_memory.h"
#include "app/train/scaling.h"
#include "base/text_table.h"
#include "graphs/run_state.h"
#include "runtime/memory/memory_plan.h"

namespace muo {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name_of(UpdateRule rule) { return rule == UpdateRule::kMuon ? "Muon" : "AdamW"; }

std::string_view name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kAllReduce:
      return "all-reduce";
    case Reduction::kReduceScatter:
      return "reduce-scatter";
    case Reduction::kReduceToOwner:
      return "reduce to owner";
  }
  return "?";
}

std::string_view name_of(Exchange exchange) {
  switch (exchange) {
    case Exchange::kNone:
      return "none";
    case Exchange::kAllGather:
      return "all-gather";
    case Exchange::kGatherToOwner:
      return "gather to owner";
    case Exchange::kAllToAll:
      return "all-to-all";
  }
  return "?";
}

std::string_view publish_name(const Bucket& bucket) {
  if (bucket.replica == ReplicaAt::kCommon) return "one replica for all";
  switch (bucket.publish) {
    case Publish::kNone:
      return "none";
    case Publish::kAllGather:
      return "all-gather";
    case Publish::kAllGatherV:
      return "all-gather-v";
  }
  return "?";
}

std::string_view name_of(Gather gather) {
  return gather == Gather::kPipelined ? "pipelined" : "simple";
}

std::int64_t unit_elements(const Bucket& bucket) {
  return std::accumulate(
      bucket.units.begin(), bucket.units.end(), std::int64_t{0},
      [](std::int64_t sum, const Unit& unit) { return sum + unit.end - unit.begin; });
}

struct RankShare {
  std::int64_t units = 0;
  std::int64_t elements = 0;
};

// What each rank computes; a unit of every rank counts for each.
std::vector<RankShare> shares(const ShardingPlan& plan) {
  std::vector<RankShare> out(static_cast<std::size_t>(plan.world));
  for (const Bucket& bucket : plan.buckets)
    for (const Unit& unit : bucket.units)
      for (int rank = 0; rank < plan.world; ++rank)
        if (unit.owner == kEveryRank || unit.owner == rank) {
          RankShare& share = out[static_cast<std::size_t>(rank)];
          ++share.units;
          share.elements += unit.end - unit.begin;
        }
  return out;
}

using Group = std::pair<std::string_view, std::int64_t>;
std::array<Group, 5> groups_of(const ParameterCounts& counts) {
  return {{{"wte", counts.wte},
           {"value_embeds", counts.value_embeds},
           {"lm_head", counts.lm_head},
           {"transformer_matrices", counts.transformer_matrices},
           {"scalars", counts.scalars}}};
}

double total_flops(const RunConfig& run) {
  return run.flops_per_token * static_cast<double>(run.iterations()) *
         static_cast<double>(run.tokens_per_step());
}

std::string extras_text(const GptConfig& m) {
  std::string out;
  for (const auto& [on, name] :
       {std::pair{m.value_embeddings, "value embeddings"}, std::pair{m.smear, "smear"},
        std::pair{m.backout, "backout"}, std::pair{m.resid_lambdas, "residual lambdas"},
        std::pair{m.x0_lambdas, "x0 lambdas"}})
    if (on) out += fmt::format("{}{}", out.empty() ? "" : ", ", name);
  return out.empty() ? "none" : out;
}

std::string run_text(const RunConfig& run) {
  const GptConfig& m = run.model;
  std::string out = fmt::format(
      "Model: {} layers, width {}, {} heads of {} ({} for keys and values), T {}, windows {}, "
      "vocabulary {} (padded {})\n"
      "Extras: {}; queries and keys times {}; logits capped at {}\n"
      "Numbers: computed in {}; gradients travel in {}, weights in {}; optimizer state of "
      "embeddings in {}\n"
      "Step: {} tokens = {} x {} x {} x {} (devices, micro-steps, rows, T)\n",
      m.n_layer, m.n_embd, m.n_head, m.head_dim(), m.n_kv_head, m.seq_len, m.window_pattern,
      m.vocab_size, m.padded_vocab(), extras_text(m), m.qk_scale, m.softcap, muo::name_of(m.dtype),
      muo::name_of(run.formats().gradient_wire), muo::name_of(run.formats().weight_wire),
      muo::name_of(run.formats().embedding_state), run.tokens_per_step(), run.world(),
      run.step.accumulation, run.step.batch, m.seq_len);
  for (const std::string& note : run.notes)
    out += fmt::format("  {}\n", note);
  out += "\nScaling\n";
  for (const std::string& note : scaling_notes(run))
    out += fmt::format("  {}\n", note);
  return out;
}

std::string parameters_text(const GptConfig& model) {
  const ParameterCounts counts = count_parameters(model);
  Table table({"", "rule", "elements"});
  for (const auto& [name, elements] : groups_of(counts)) {
    const bool muon = name == "transformer_matrices";
    if (elements > 0) table.add({std::string(name), muon ? "Muon" : "AdamW", grouped(elements)});
  }
  table.add({"total", "", grouped(counts.total())});
  table.add({"scaling (matrices, lm_head)", "", grouped(counts.scaling())});
  return "\nParameters\n" + table.text();
}

std::string buckets_text(const ShardingPlan& plan) {
  Table table(
      {"bucket", "rule", "units", "elements", "padding", "reduction", "exchange", "publish"});
  for (const Bucket& bucket : plan.buckets) {
    const std::int64_t elements = unit_elements(bucket);
    table.add({bucket.name, std::string(name_of(bucket.rule)),
               grouped(static_cast<std::int64_t>(bucket.units.size())), grouped(elements),
               grouped(bucket.full_elements() - elements), std::string(name_of(bucket.reduction)),
               std::string(name_of(bucket.exchange)), std::string(publish_name(bucket))});
  }
  return fmt::format("\nSharding: {}, {} device{}, gather {}\n", plan.strategy, plan.world,
                     plan.world == 1 ? "" : "s", name_of(plan.gather)) +
         table.text();
}

std::string ranks_text(const ShardingPlan& plan, const PlanCost& cost) {
  Table table({"rank", "units", "elements", "Newton-Schulz", "sent per step"});
  const std::vector<RankShare> share = shares(plan);
  for (std::size_t rank = 0; rank < share.size(); ++rank)
    table.add({std::to_string(rank), grouped(share[rank].units), grouped(share[rank].elements),
               flop_text(cost.muon_flops.at(rank)), size_text(cost.sent_bytes.at(rank))});
  return "\nWho updates what\n" + table.text() +
         fmt::format("  balance {:.3f} (1: no rank waits for another), padding {} elements\n",
                     cost.balance, grouped(cost.padding_elements));
}

std::int64_t tensor_bytes(const RunConfig& run, const MemoryPlan& memory) {
  return memory.bytes * run.world() + memory.common_bytes;
}

std::string memory_text(const RunConfig& run, const MemoryPlan& memory) {
  Table table({"", "per device"});
  std::int64_t sum = 0;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    const std::int64_t bytes = memory.category_bytes(category);
    sum += bytes;
    if (bytes > 0) table.add({std::string(muo::name_of(category)), size_text(bytes)});
  }
  table.add({"sum", size_text(sum)});
  if (memory.common_bytes > 0) table.add({"one for all devices", size_text(memory.common_bytes)});
  table.add({"allocated", size_text(memory.bytes)});
  return "\nMemory\n" + table.text() +
         fmt::format(
             "  Tensors that are never in use together share memory: {} saved.\n"
             "  All devices together: {}\n",
             size_text(sum - memory.common_bytes - memory.bytes),
             size_text(tensor_bytes(run, memory)));
}

Json buckets_json(const ShardingPlan& plan) {
  Json out = Json::array();
  for (const Bucket& bucket : plan.buckets) {
    const std::int64_t elements = unit_elements(bucket);
    out.push_back({{"name", bucket.name},
                   {"rule", name_of(bucket.rule)},
                   {"units", bucket.units.size()},
                   {"elements", elements},
                   {"padding", bucket.full_elements() - elements},
                   {"reduction", name_of(bucket.reduction)},
                   {"exchange", name_of(bucket.exchange)},
                   {"publish", publish_name(bucket)}});
  }
  return out;
}

std::string process_text(const PlanReport& report) {
  const RunConfig& run = report.config;
  if (run.group.plugin != nullptr) return "";
  const std::string staging =
      report.staging == 0 ? ""
                          : fmt::format("{} of staging memory for saves in the background, ",
                                        size_text(report.staging * run.world()));
  return fmt::format(
      "  The training process: {}: the tensors, {}and\n  a base of {} (program and libraries; per "
      "device threads, packed operands, batches, "
      "graphs)\n",
      size_text(process_bytes(report)), staging,
      size_text(process_base(run.world(), report.staging > 0)));
}

}  // namespace

std::int64_t process_bytes(const PlanReport& report) {
  return tensor_bytes(report.config, report.memory) + report.staging * report.config.world() +
         process_base(report.config.world(), report.staging > 0);
}

std::string plan_table(const PlanReport& report) {
  const auto params = gpt_parameters(report.config.model);
  return run_text(report.config) + parameters_text(report.config.model) +
         buckets_text(report.sharding) +
         ranks_text(report.sharding, plan_cost(report.sharding, params)) +
         memory_text(report.config, report.memory) + process_text(report) +
         (report.rates
              ? prediction_text(exposed_time(report.sharding, params, *report.rates), *report.rates)
              : "");
}

std::string plan_json(const PlanReport& report) {
  const RunConfig& run = report.config;
  const auto params = gpt_parameters(run.model);
  const PlanCost cost = plan_cost(report.sharding, params);
  const HyperParameters& hyper = run.hyper;
  Json groups;
  for (const auto& [name, elements] : groups_of(count_parameters(run.model)))
    groups[std::string(name)] = elements;
  Json rates;
  for (const LearningRate& rate : learning_rates(hyper, params))
    rates[std::string(rate.group)] = rate.lr;
  Json ranks = Json::array();
  const std::vector<RankShare> share = shares(report.sharding);
  for (std::size_t rank = 0; rank < share.size(); ++rank)
    ranks.push_back({{"units", share[rank].units},
                     {"elements", share[rank].elements},
                     {"muon_flops", cost.muon_flops.at(rank)},
                     {"sent_bytes", cost.sent_bytes.at(rank)}});
  Json memory;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    memory[std::string(muo::name_of(category))] = report.memory.category_bytes(category);
  }
  Json out = {{"parameters", run.parameters},
              {"scaling_parameters", run.scaling_parameters},
              {"parameter_groups", groups},
              {"flops_per_token", run.flops_per_token},
              {"attention_flops_per_token", attention_flops_per_token(run.model)},
              {"causal_flops_per_token", causal_flops_per_token(run.model)},
              {"total_flops", total_flops(run)},
              {"target_tokens", run.targets.tokens},
              {"target_batch_tokens", run.targets.batch_tokens},
              {"learning_rates", rates},
              {"batch_lr_scale", run.scales.batch_lr},
              {"width_lr_scale", run.scales.width_lr},
              {"weight_decay", hyper.muon_weight_decay},
              {"weight_decay_scale", run.scales.weight_decay},
              {"iterations", run.iterations()},
              {"total_batch_tokens", run.tokens_per_step()},
              {"world", run.world()},
              {"accumulation", run.step.accumulation},
              {"device_batch_size", run.step.batch},
              {"dtype", muo::name_of(run.model.dtype)},
              {"gradient_wire", muo::name_of(run.formats().gradient_wire)},
              {"weight_wire", muo::name_of(run.formats().weight_wire)},
              {"embedding_state", muo::name_of(run.formats().embedding_state)},
              {"strategy", report.sharding.strategy},
              {"gather", name_of(report.sharding.gather)},
              {"balance", cost.balance},
              {"padding_elements", cost.padding_elements},
              {"buckets", buckets_json(report.sharding)},
              {"ranks", ranks},
              {"memory_bytes_by_category", memory},
              {"memory_bytes_per_device", report.memory.bytes},
              {"memory_bytes_in_common", report.memory.common_bytes},
              {"memory_bytes", tensor_bytes(run, report.memory)},
              {"staging_bytes", report.staging * run.world()},
              {"process_bytes", process_bytes(report)},
              {"notes", run.notes},
              {"scaling_notes", scaling_notes(run)}};
  if (report.rates)
    out["predicted"] = prediction_json(exposed_time(report.sharding, params, *report.rates));
  return out.dump(2) + "\n";
}

}  // namespace muo
