#include "kit/plan/plan_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "graphs/run_state.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_memory.h"
#include "trainer/run/scaling.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

Json groups_json(const model::ParameterCounts& counts) {
  return {{"wte", counts.wte},
          {"value_embeds", counts.value_embeds},
          {"lm_head", counts.lm_head},
          {"transformer_matrices", counts.transformer_matrices},
          {"scalars", counts.scalars}};
}

std::string extras_text(const model::GptConfig& m) {
  std::vector<std::string_view> names;
  for (const auto& [on, name] :
       {std::pair{m.value_embeddings, "value embeddings"}, std::pair{m.smear, "smear"},
        std::pair{m.backout, "backout"}, std::pair{m.resid_lambdas, "residual lambdas"},
        std::pair{m.x0_lambdas, "x0 lambdas"}})
    if (on) names.emplace_back(name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string run_text(const trainer::RunConfig& run, const trainer::ExpectedTime& time) {
  const model::GptConfig& m = run.model;
  const optim::NumberFormats formats = run.formats();
  std::string out = fmt::format(
      "Model: {} layers, width {}, {} heads of {} ({} for keys and values), T {}, windows {}, "
      "vocabulary {} (padded {})\n"
      "Extras: {}; queries and keys scaled by {}; logits capped at {}\n"
      "Number formats: compute {}; gradients {}, in collectives {}; weights in collectives {}; "
      "masters {}, momentum {}, AdamW's moments {}, embeddings' moments {}\n"
      "Step: {} tokens = {} x {} x {} x {} (devices, micro-steps, rows, T){}\n",
      m.n_layer, m.n_embd, m.n_head, m.head_dim(), m.n_kv_head, m.seq_len, m.window_pattern,
      m.vocab_size, m.padded_vocab(), extras_text(m), m.qk_scale, m.softcap, name_of(m.dtype),
      name_of(formats.gradients), name_of(formats.gradient_wire), name_of(formats.weight_wire),
      formats.split_masters ? "split" : "fp32", name_of(formats.momentum_state),
      name_of(formats.adam_state),
      name_of(formats.adam_state == DType::kBF16 ? DType::kBF16 : formats.embedding_state),
      run.tokens_per_step(), run.world(), run.step.accumulation, run.step.batch, m.seq_len,
      run.batches.empty() ? "" : ", the largest of " + run.batch_text());
  if (trainer::recompute_share(run) > 0)
    out += fmt::format("Recomputed in backward: {}, {:.1f} % more FLOPs\n",
                       trainer::recompute_text(run), 100 * trainer::recompute_share(run));
  if (time.seconds > 0) out += fmt::format("Time: {}\n", time.text);
  for (const std::string& note : run.notes)
    out += fmt::format("  {}\n", note);
  out += "\nScaling\n";
  for (const std::string& note : trainer::scaling_notes(run))
    out += fmt::format("  {}\n", note);
  return out;
}

std::string parameters_text(const model::GptConfig& model) {
  const model::ParameterCounts counts = model::count_parameters(model);
  Table table({"", "rule", "elements"});
  const Json groups = groups_json(counts);
  for (const auto& [name, elements] : groups.items())
    if (elements > 0)
      table.add({name, name == "transformer_matrices" ? "Muon" : "AdamW", grouped(elements)});
  table.add({"total", "", grouped(counts.total())});
  table.add({"scaling (matrices, lm_head)", "", grouped(counts.scaling())});
  return "\nParameters\n" + table.text();
}

Json buckets_json(const optim::ShardingPlan& plan) {
  Json out = Json::array();
  for (const optim::Bucket& bucket : plan.buckets) {
    std::int64_t elements = 0;
    for (const optim::Unit& unit : bucket.units)
      elements += unit.end - unit.begin;
    out.push_back(
        {{"name", bucket.name},
         {"rule", name_of(bucket.rule)},
         {"units", bucket.units.size()},
         {"elements", elements},
         {"padding", bucket.full_elements() - elements},
         {"reduction", name_of(bucket.reduction)},
         {"exchange", name_of(bucket.exchange)},
         {"publish", bucket.replica == optim::ReplicaAt::kCommon    ? "one replica for all"
                     : bucket.replica == optim::ReplicaAt::kSharded ? "gathered when read"
                                                                    : name_of(bucket.publish)}});
  }
  return out;
}

std::string buckets_text(const trainer::RunConfig& run, const optim::ShardingPlan& plan) {
  Table table(
      {"bucket", "rule", "units", "elements", "padding", "reduction", "exchange", "publish"});
  for (const Json& bucket : buckets_json(plan)) {
    std::vector<std::string> cells;
    for (const Json& value : bucket)
      cells.push_back(value.is_string() ? value.get<std::string>() : grouped(value));
    table.add(std::move(cells));
  }
  return fmt::format("\nSharding: {}, {} device{}, shard {}, gather {}\n", plan.strategy,
                     plan.world, plan.world == 1 ? "" : "s", name_of(*run.options.sharding.shard),
                     name_of(run.options.sharding.gather)) +
         table.text();
}

// Work and communication of each rank. A unit that every rank updates counts for each rank.
Json ranks_json(const optim::ShardingPlan& plan, const optim::PlanCost& cost) {
  Json out = Json::array();
  for (int rank = 0; rank < plan.world; ++rank) {
    std::int64_t units = 0, elements = 0;
    for (const optim::Bucket& bucket : plan.buckets)
      for (const optim::Unit& unit : bucket.units)
        if (unit.owner == optim::kEveryRank || unit.owner == rank) {
          ++units;
          elements += unit.end - unit.begin;
        }
    out.push_back({{"units", units},
                   {"elements", elements},
                   {"muon_flops", cost.muon_flops.at(static_cast<std::size_t>(rank))},
                   {"sent_bytes", cost.sent_bytes.at(static_cast<std::size_t>(rank))},
                   {"commit_bytes", cost.commit_bytes.at(static_cast<std::size_t>(rank))}});
  }
  return out;
}

std::string ranks_text(const optim::ShardingPlan& plan, const optim::PlanCost& cost) {
  Table table({"rank", "units", "elements", "Newton-Schulz", "sent per step", "memory in commit"});
  const Json ranks = ranks_json(plan, cost);
  for (const auto& [index, rank] : ranks.items())
    table.add({index, grouped(rank["units"]), grouped(rank["elements"]),
               flop_text(rank["muon_flops"]), size_text(rank["sent_bytes"]),
               size_text(rank["commit_bytes"])});
  return "\nWork by rank\n" + table.text() +
         fmt::format("  balance {:.3f} (1: no rank waits for another), padding {} elements\n",
                     cost.balance, grouped(cost.padding_elements));
}

std::int64_t tensor_bytes(const trainer::RunConfig& run, const MemoryPlan& memory) {
  return memory.bytes * run.world() + memory.common_bytes;
}

std::string memory_text(const trainer::RunConfig& run, const MemoryPlan& memory,
                        std::int64_t fixed) {
  Table table({"", "per device"});
  std::int64_t sum = 0;
  for (const MemoryCategory category : kValues<MemoryCategory>) {
    const std::int64_t bytes = memory.category_bytes(category);
    sum += bytes;
    if (bytes > 0) table.add({std::string(name_of(category)), size_text(bytes)});
  }
  table.add({"sum", size_text(sum)});
  if (memory.common_bytes > 0) table.add({"shared by all devices", size_text(memory.common_bytes)});
  table.add({"allocated", size_text(memory.bytes)});
  table.add({"without activations", size_text(fixed)});
  return "\nMemory\n" + table.text() +
         fmt::format(
             "  Tensors that are never in use together share memory: {} saved.\n"
             "  All devices together: {}\n",
             size_text(sum - memory.common_bytes - memory.bytes),
             size_text(tensor_bytes(run, memory)));
}

std::string process_text(const PlanReport& report) {
  const trainer::RunConfig& run = report.run.config;
  if (run.group.plugin != nullptr) return "";
  const std::string staging = report.run.staging_bytes == 0
                                  ? ""
                                  : fmt::format("{} of staging memory for background saves, ",
                                                size_text(report.run.staging_bytes * run.world()));
  return fmt::format(
      "  The training process: {}: the tensors, {}and\n  a base of {} (program and libraries; per "
      "device threads, packed operands, batches, graphs)\n",
      size_text(process_bytes(report)), staging,
      size_text(trainer::process_base(run.world(), report.run.staging_bytes > 0)));
}

std::string prediction_text(const optim::ExposedTime& time, const optim::MachineRates& rates) {
  return fmt::format(
      "\nPredicted: {}\n"
      "  communication {:.3f} ms, Newton-Schulz {:.3f} ms, commit {:.3f} ms\n"
      "  added to the step: {:.3f} ms, of which {:.3f} ms are exposed communication and {:.3f} ms "
      "exposed\n  Newton-Schulz\n{}",
      rates_text(rates), 1e3 * time.communication_s, 1e3 * time.newton_schulz_s,
      1e3 * time.commit_s, 1e3 * time.update_s, 1e3 * time.communication_exposed_s,
      1e3 * time.newton_schulz_exposed_s,
      rates.ranks_per_box > 0 ? fmt::format("  a box sends {} to the others in a step\n",
                                            size_text(static_cast<std::int64_t>(time.box_bytes)))
                              : "");
}

}  // namespace

std::int64_t process_bytes(const PlanReport& report) {
  return tensor_bytes(report.run.config, report.run.memory) +
         report.run.staging_bytes * report.run.config.world() +
         trainer::process_base(report.run.config.world(), report.run.staging_bytes > 0);
}

std::string plan_table(const PlanReport& report) {
  const std::vector<ParamSpec>& params = report.run.params;
  return run_text(report.run.config, report.time) + parameters_text(report.run.config.model) +
         buckets_text(report.run.config, report.run.plan) +
         ranks_text(report.run.plan, optim::plan_cost(report.run.plan, params)) +
         memory_text(report.run.config, report.run.memory, report.fixed) + process_text(report) +
         (report.rates
              ? prediction_text(optim::exposed_time(report.run.plan, params, *report.rates),
                                *report.rates)
              : "");
}

Json plan_object(const PlanReport& report) {
  const trainer::RunConfig& run = report.run.config;
  const std::vector<ParamSpec>& params = report.run.params;
  const optim::PlanCost cost = optim::plan_cost(report.run.plan, params);
  const optim::NumberFormats formats = run.formats();
  Json rates;
  for (const optim::LearningRate& rate : optim::learning_rates(run.hyper, params))
    rates[std::string(rate.group)] = rate.lr;
  Json memory;
  for (const MemoryCategory category : kValues<MemoryCategory>)
    memory[std::string(name_of(category))] = report.run.memory.category_bytes(category);
  // With --time-budget alone, the number of steps is not known.
  const auto if_bounded = [&](auto value) {
    return run.is_bounded() ? Json(value) : Json(nullptr);
  };
  Json out = {
      {"parameters", run.parameters},
      {"scaling_parameters", run.scaling_parameters},
      {"parameter_groups", groups_json(model::count_parameters(run.model))},
      {"flops_per_token", run.flops_per_token},
      {"attention_flops_per_token", model::attention_flops_per_token(run.model)},
      {"causal_flops_per_token", model::causal_flops_per_token(run.model)},
      {"total_flops", if_bounded(run.flops_per_token * run.horizon_tokens())},
      {"total_tokens", if_bounded(run.horizon_tokens())},
      {"target_tokens", run.targets.tokens},
      {"target_batch_tokens", run.targets.batch_tokens},
      {"learning_rates", rates},
      {"batch_lr_scale", run.scales.batch_lr},
      {"width_lr_scale", run.scales.width_lr},
      {"weight_decay", run.hyper.muon_weight_decay},
      {"weight_decay_scale", run.scales.weight_decay},
      {"iterations", if_bounded(run.iterations())},
      {"total_batch_tokens", run.tokens_per_step()},
      {"packing_share", run.packing_share},
      {"world", run.world()},
      {"accumulation", run.step.accumulation},
      {"device_batch_size", run.step.batch},
      {"recompute",
       {{"mlp_layers", run.step.recompute.mlps},
        {"block_layers", run.step.recompute.blocks},
        {"flops_per_token", model::recomputed_flops_per_token(run.model, run.step.recompute)}}},
      {"head_chunk_bytes", run.model.head_chunk_bytes},
      {"dtype", name_of(run.model.dtype)},
      {"gradient_dtype", name_of(formats.gradients)},
      {"gradient_wire", name_of(formats.gradient_wire)},
      {"weight_wire", name_of(formats.weight_wire)},
      {"master_weights", formats.split_masters ? "split" : "fp32"},
      {"momentum_state", name_of(formats.momentum_state)},
      {"adam_state", name_of(formats.adam_state)},
      {"embedding_state", name_of(formats.embedding_state)},
      {"strategy", report.run.plan.strategy},
      {"gather", name_of(run.options.sharding.gather)},
      {"shard", name_of(*run.options.sharding.shard)},
      {"recomputed_blocks", run.step.recompute.blocks},
      {"recomputed_mlps", run.step.recompute.mlps},
      {"balance", cost.balance},
      {"padding_elements", cost.padding_elements},
      {"buckets", buckets_json(report.run.plan)},
      {"ranks", ranks_json(report.run.plan, cost)},
      {"memory_bytes_by_category", memory},
      {"memory_bytes_per_device", report.run.memory.bytes},
      {"memory_bytes_without_activations", report.fixed},
      {"memory_bytes_in_common", report.run.memory.common_bytes},
      {"memory_bytes", tensor_bytes(run, report.run.memory)},
      {"staging_bytes", report.run.staging_bytes * run.world()},
      {"process_bytes", process_bytes(report)},
      {"notes", run.notes},
      {"scaling_notes", trainer::scaling_notes(run)}};
  if (report.time.seconds > 0) out["expected_seconds"] = report.time.seconds;
  if (report.rates)
    out["predicted"] = prediction_json(optim::exposed_time(report.run.plan, params, *report.rates));
  return out;
}

std::string plan_json(const PlanReport& report) { return plan_object(report).dump(2) + "\n"; }

std::optional<optim::MachineRates> machine_rates(const trainer::RunConfig& config,
                                                 const trainer::PredictionOptions& options) {
  if (!options.link_gbps || !options.gemm_tflops) return std::nullopt;
  optim::MachineRates rates{.link_bytes_per_s = 1e9 * *options.link_gbps,
                            .link_latency_s = 1e-6 * options.link_us,
                            .gemm_flops_per_s = 1e12 * *options.gemm_tflops,
                            .step_s = 1e-3 * options.step_ms,
                            .accumulation = config.step.accumulation,
                            .loop = config.form_of_micro_steps() == graphs::MicroSteps::kLoop};
  if (options.inter_gbps) {
    rates.ranks_per_box = config.world() / static_cast<int>(options.boxes);
    rates.box_bytes_per_s = 1e9 * *options.inter_gbps;
  }
  if (options.memory_gbps) rates.memory_bytes_per_s = 1e9 * *options.memory_gbps;
  return rates;
}

std::string rates_text(const optim::MachineRates& rates) {
  return fmt::format(
      "{:g} GB/s, {}{:g} us per collective, {:g} TFLOP/s, {}{}", 1e-9 * rates.link_bytes_per_s,
      rates.ranks_per_box > 0 ? fmt::format("{:g} GB/s between boxes of {}, ",
                                            1e-9 * rates.box_bytes_per_s, rates.ranks_per_box)
                              : "",
      1e6 * rates.link_latency_s, 1e-12 * rates.gemm_flops_per_s,
      std::isfinite(rates.memory_bytes_per_s)
          ? fmt::format("memory {:g} GB/s, ", 1e-9 * rates.memory_bytes_per_s)
          : "",
      rates.step_s > 0 ? fmt::format("overlapping a step of {:g} ms", 1e3 * rates.step_s)
                       : "without overlap");
}

nlohmann::ordered_json prediction_json(const optim::ExposedTime& time) {
  return {{"communication_ms", 1e3 * time.communication_s},
          {"newton_schulz_ms", 1e3 * time.newton_schulz_s},
          {"commit_ms", 1e3 * time.commit_s},
          {"update_ms", 1e3 * time.update_s},
          {"box_bytes", time.box_bytes},
          {"exposed_communication_ms", 1e3 * time.communication_exposed_s},
          {"exposed_newton_schulz_ms", 1e3 * time.newton_schulz_exposed_s}};
}

}  // namespace muo::kit
