#include "graphs/run_state.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string>

#include "graphs/capture.h"
#include "graphs/initial_weights.h"
#include "kernels/fingerprint.h"
#include "runtime/memory/memory_plan.h"

namespace muo::graphs {
namespace {

constexpr Tag kVerifyTag = 0xF0000000;  // between steps, distinct from the plan's tags

std::vector<Tensor> all_weights(const optim::ShardedStep& update, std::size_t count) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(update.weight(i));
  return out;
}

}  // namespace

RunState::RunState(RankContext& rank, const RunSetup& setup, const std::vector<ParamSpec>& params,
                   const optim::ShardingPlan& plan, Arena& arena)
    : rotary(model::make_rotary_tables(setup.model, setup.model.seq_len, arena)),
      ring(rank.device, {kRingSlots * static_cast<std::int64_t>(sizeof(MetricsRecord))},
           DType::kBytes, "metrics ring"),
      squares_ring(rank.device,
                   {kRingSlots + 1, static_cast<std::int64_t>(params.size()), kUpdateSquares},
                   DType::kF64, "update squares"),
      token_bytes(setup.step_only ? Tensor{} : make_token_bytes(setup.model, arena)),
      fingerprints(arena.tensor({.name = "fingerprints",
                                 .shape = {rank.world, static_cast<std::int64_t>(params.size())},
                                 .dtype = DType::kI64,
                                 .category = MemoryCategory::kMetrics,
                                 .lifespan = Lifespan::kRun})),
      update(rank, plan, params, arena,
             StepGraph::spans_graphs(setup.step, plan.reduces_every_micro_step())
                 ? Lifespan::kRun
                 : Lifespan::kStep),
      weights(all_weights(update, params.size())),
      step(rank, setup.model, setup.step, rotary, update,
           {.records = ring.tensor(), .squares = squares_ring.tensor().rows(0, kRingSlots)}, arena),
      rank_(rank),
      setup_(setup),
      params_(params),
      read_counts_(rank.device, {sizeof(CountsRead)}, DType::kBytes, "counts"),
      hyper_(rank.device, {sizeof(HyperParameters)}, DType::kBytes, "hyper-parameters"),
      read_fingerprints_(rank.device, fingerprints.shape, DType::kI64, "fingerprints") {
  if (setup.step_only) return;
  const PassWeights of_pass{weights, update.shards_weights() ? &update : nullptr};
  eval.emplace(rank, setup.model, setup.step.batch, setup.model.seq_len, rotary, of_pass,
               token_bytes, arena);
  decoder.emplace(rank, setup.model, rotary, of_pass, 1, arena);
}

void RunState::warm_up() {
  step.warm_up();
  if (eval) eval->warm_up();
  if (decoder) decoder->warm_up();
  rank_.wait(rank_.compute);
  clear_ring();
}

void RunState::capture() {
  step.capture();
  if (eval) eval->capture();
  if (decoder) decoder->capture();
}

std::vector<const GraphTrace*> RunState::traces() const {
  std::vector<const GraphTrace*> out = step.traces();
  if (eval) out.push_back(&eval->trace());
  if (decoder) {
    const auto decode = decoder->traces();
    out.insert(out.end(), decode.begin(), decode.end());
  }
  return out;
}

void RunState::initialize(const std::vector<std::int32_t>& bytes_of_token) {
  Stream& stream = rank_.compute;
  model::fill_rotary_tables(stream, setup_.model, rotary);
  if (token_bytes) fill_token_bytes(stream, token_bytes, bytes_of_token);
  stream.copy(update.hyper(), host_struct(setup_.hyper));
  rank_.wait(stream);
}

void RunState::initialize_weights(std::uint64_t seed) {
  graphs::initialize_weights(rank_, seed, params_, update);
}

void RunState::reset(const HyperParameters& hyper) {
  for (const StateEntry& entry : update.state())
    if (std::ranges::find(params_, entry.name, &ParamSpec::name) == params_.end())
      rank_.compute.zero(entry.values);
  rank_.compute.copy(update.hyper(), host_struct(hyper));
  rank_.wait(rank_.compute);
  clear_ring();
  set_counts({});
}

// The buffer is free: before any other step is asked for, the host has waited for the copies of the
// last one, which follow the copy of its hyper-parameters.
void RunState::set_hyper(const HyperParameters& hyper) {
  *hyper_.tensor().as_struct<HyperParameters>() = hyper;
  rank_.compute.copy(update.hyper(), hyper_.tensor());
}

void RunState::set_counts(const Counts& counts) {
  StepScalars scalars;
  scalars.step = counts.step;
  scalars.updates = counts.updates;
  step.count_from(counts.step);
  rank_.compute.copy(update.scalars(), host_struct(scalars));
  rank_.compute.copy(update.statistics(), host_struct(counts.statistics));
  rank_.wait(rank_.compute);
}

RunState::Counts RunState::counts() const {
  auto& read = *read_counts_.tensor().as_struct<CountsRead>();
  rank_.compute.copy(host_struct(read.scalars), update.scalars());
  rank_.compute.copy(host_struct(read.statistics), update.statistics());
  rank_.wait(rank_.compute);
  return {
      .step = read.scalars.step, .updates = read.scalars.updates, .statistics = read.statistics};
}

bool RunState::has_metrics(std::int64_t index) const {
  // Acquire: makes writes before the sequence number's visible.
  std::int64_t& sequence = record_of(index).sequence;
  return std::atomic_ref(sequence).load(std::memory_order_acquire) == index + 1;
}

MetricsRecord RunState::metrics(std::int64_t index) const {
  MUO_CHECK(has_metrics(index), "metrics of step ", index, " are not in the ring");
  return record_of(index);
}

MetricsRecord& RunState::record_of(std::int64_t index) const {
  return ring.tensor().as_struct<MetricsRecord>()[index % kRingSlots];
}

void RunState::clear_ring() {
  std::fill_n(ring.tensor().data, ring.tensor().bytes(), std::byte{0});
}

std::span<const UpdateSquares> RunState::update_squares(std::int64_t index) const {
  const std::int64_t slot = has_metrics(index + 1) ? (index + 1) % kRingSlots : kRingSlots;
  const Tensor squares = squares_ring.tensor().row(slot);
  return {reinterpret_cast<const UpdateSquares*>(squares.as<double>()), params_.size()};
}

void RunState::finish_update() {
  update.sum_last_update();
  rank_.compute.copy(squares_ring.tensor().row(kRingSlots), update.update_squares());
  rank_.wait(rank_.compute);
}

void RunState::verify_sync() {
  step.flush();
  const std::int64_t count = fingerprints.shape[1];
  const Tensor mine = fingerprints.row(rank_.rank);
  rank_.compute.zero(mine);
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!update.is_sharded(i))
      fingerprint(rank_.compute,
                  {.out = mine.elements(static_cast<std::int64_t>(i), 1), .x = weights[i]});
  rank_.wait(rank_.compute);
  if (rank_.world == 1) return;
  rank_.communicator.all_gather(rank_.comm, kVerifyTag, fingerprints, mine);
  rank_.wait(rank_.comm);
  rank_.compute.copy(read_fingerprints_.tensor(), fingerprints);
  rank_.wait(rank_.compute);
  const std::span all = read_fingerprints_.values<std::int64_t>();
  for (std::int64_t r = 1; r < rank_.world; ++r)
    for (std::int64_t i = 0; i < count; ++i)
      MUO_CHECK(all[static_cast<std::size_t>(r * count + i)] == all[static_cast<std::size_t>(i)],
                "weights of '", params_[static_cast<std::size_t>(i)].name, "' on rank ", r,
                " differ from those on rank 0");
}

std::int64_t plan_fixed_memory(const RunSetup& setup, const std::vector<ParamSpec>& params,
                               const optim::ShardingPlan& plan, int rank) {
  const auto make = [&](RankContext& context, Arena& arena) {
    return std::make_unique<RunState>(context, setup, params, plan, arena);
  };
  return traced(rank, plan.world, make, [](const TraceArena& arena, const auto& traces) {
    // The cache for samples shares the memory of activations.
    constexpr std::array kLeftOut = {MemoryCategory::kActivations, MemoryCategory::kCache};
    return bytes_without(kLeftOut, arena, traces);
  });
}

MemoryPlan plan_rank_memory(const RunSetup& setup, const std::vector<ParamSpec>& params,
                            const optim::ShardingPlan& plan, int rank) {
  return traced_plan(rank, plan.world, [&](RankContext& context, Arena& arena) {
    return std::make_unique<RunState>(context, setup, params, plan, arena);
  });
}

}  // namespace muo::graphs
