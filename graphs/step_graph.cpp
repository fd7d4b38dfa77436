#include "graphs/step_graph.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "kernels/metrics.h"
#include "kernels/reduce.h"
#include "runtime/profile_range.h"

namespace muo::graphs {

StepGraph::StepGraph(RankContext& rank, const model::GptConfig& config, const StepShape& shape,
                     const model::RotaryTables& rotary, optim::ShardedStep& update,
                     const Rings& rings, Arena& arena)
    : rank_(rank),
      update_(update),
      rings_(rings),
      loss_scale_(1.0F / static_cast<float>(shape.accumulation * rank.world * shape.batch *
                                            config.seq_len)) {
  const std::int64_t full_parts = (shape.accumulation - 1) / kMaxUnrolled;
  const std::int64_t rest = shape.accumulation - full_parts * kMaxUnrolled;
  const auto add = [&](std::int64_t begin, bool closes, std::int64_t micro_steps,
                       std::int64_t repeats) {
    Launch launch;
    launch.opens = begin == 0;
    launch.closes = closes;
    launch.begin = begin;
    launch.micro_steps = micro_steps;
    launch.repeats = repeats;
    launches_.push_back(std::move(launch));
  };
  if (full_parts >= 1) add(0, false, kMaxUnrolled, 1);
  if (full_parts >= 2) add(kMaxUnrolled, false, kMaxUnrolled, full_parts - 1);
  add(shape.accumulation - rest, true, rest, 1);

  const std::int64_t longest = std::min(shape.accumulation, kMaxUnrolled);
  const auto input = [&](const char* name) {
    return arena.tensor({.name = name,
                         .shape = {longest, shape.batch, config.seq_len},
                         .dtype = DType::kI32,
                         .category = MemoryCategory::kInput,
                         .lifespan = Lifespan::kRun});
  };
  inputs_ = input("inputs");
  targets_ = input("targets");
  if (shape.timed)
    clock_ = arena.tensor({.name = "step clock",
                           .shape = {static_cast<std::int64_t>(sizeof(PhaseClock))},
                           .dtype = DType::kBytes,
                           .category = MemoryCategory::kMetrics,
                           .lifespan = Lifespan::kRun});
  const std::size_t params = model::gpt_parameters(config).size();
  for (std::size_t i = 0; i < params; ++i) {
    weights_.push_back(update.weight(i));
    gradients_.push_back(update.gradient(i));
  }
  // Each unrolled micro-step has its own activations. The memory plan then detects that one's are
  // dead before the next one's begin, and gives them the same memory.
  for (std::int64_t i = 0; i < longest; ++i)
    gpts_.push_back(std::make_unique<model::Gpt>(
        config,
        model::Gpt::Size{
            .b = shape.batch, .t = config.seq_len, .backward = true, .recompute = shape.recompute},
        rotary, "micro." + std::to_string(i) + ".", arena));
}

void StepGraph::wait_for_weight(optim::ShardedStep::MicroStep& updated, std::size_t param) {
  const bool waits = updated.is_gathering(param);
  if (waits) mark_phase(StepPhase::kForward);
  updated.weight_needed(param);
  if (waits) mark_phase(StepPhase::kGather);
}

void StepGraph::micro_step(std::int64_t index, std::int64_t of_step) {
  const bool first = of_step == 0;
  const ProfileRange range(ProfileKind::kPhase, ProfileRange::Payload{index}, "micro-step");
  Stream& stream = rank_.compute;
  const model::Gpt& gpt = *gpts_[static_cast<std::size_t>(index)];
  optim::ShardedStep::MicroStep updated = open_->micro_step(of_step);
  model::WeightSource weights{.weights = weights_};
  if (first || update_.shards_weights())
    weights.before_use = [&](std::size_t param) { wait_for_weight(updated, param); };
  model::GradientSink sink{.gradients = gradients_,
                           .accumulate = !first && !update_.reduces_every_micro_step()};
  sink.after_losses = [this] { mark_phase(StepPhase::kLosses); };
  if (updated.reduces()) {
    sink.before_write = [&](std::size_t param) { updated.gradient_needed(param); };
    sink.ready = [&](std::size_t param) { updated.gradient_ready(param); };
  }
  gpt.forward(stream, weights, inputs_.row(index));
  mark_phase(StepPhase::kForward);
  gpt.losses_and_backward(stream, weights, inputs_.row(index), targets_.row(index), loss_scale_,
                          sink);
  sum(stream, {.out = update_.totals().row(0),
               .x = gpt.row_losses(),
               .scale = static_cast<double>(loss_scale_),
               .accumulate = !first});
  mark_phase(StepPhase::kBackward);
}

void StepGraph::mark_phase(StepPhase phase) {
  if (clock_) muo::mark_phase(rank_.compute, {.clock = clock_, .phase = static_cast<int>(phase)});
}

void StepGraph::enqueue(const Launch& launch) {
  mark_phase(StepPhase::kBetween);
  if (launch.opens) {
    open_ = update_.begin();
    mark_phase(StepPhase::kBegin);
  }
  for (std::int64_t i = 0; i < launch.micro_steps; ++i)
    micro_step(i, launch.begin + i);
  if (!launch.closes) return open_->join();
  open_->finish([this](Stream& stream) {
    mark_phase(StepPhase::kUpdate);
    write_metrics(stream, {.ring = rings_.records,
                           .totals = update_.totals(),
                           .scalars = update_.scalars(),
                           .squares_ring = rings_.squares,
                           .squares = update_.update_squares()});
  });
  open_.reset();
  mark_phase(StepPhase::kGather);
}

void StepGraph::warm_up() {
  const ProfileRange range(ProfileKind::kPhase, "warm-up");
  for (const Launch& launch : launches_)
    enqueue(launch);
}

void StepGraph::capture() {
  const ProfileRange range(ProfileKind::kPhase, "capture");
  for (Launch& launch : launches_)
    launch.graph = rank_.compute.capture([&] { enqueue(launch); });
}

void StepGraph::run(Tensor inputs, Tensor targets, Event& copied) {
  const ProfileRange range(ProfileKind::kStep, ProfileRange::Payload{next_step_++}, "step");
  std::int64_t begin = 0;
  for (const Launch& launch : launches_)
    for (std::int64_t i = 0; i < launch.repeats; ++i) {
      const std::int64_t end = begin + launch.micro_steps;
      if (rank_.interruption != nullptr && !rank_.compute.is_host()) check_interruption(launch);
      rank_.compute.copy(inputs_.rows(0, launch.micro_steps), inputs.rows(begin, end));
      rank_.compute.copy(targets_.rows(0, launch.micro_steps), targets.rows(begin, end));
      if (launch.closes) rank_.compute.record(copied);
      if (launch.graph != nullptr) {
        const ProfileRange enqueueing(ProfileKind::kLaunch, "launch");
        rank_.compute.launch(*launch.graph);
      } else {
        enqueue(launch);
      }
      begin = end;
    }
  behind_ = update_.leaves_replicas_behind();
}

// A collective that one rank has launched needs all other ranks, so an interruption is possible
// only at certain points.
void StepGraph::check_interruption(const Launch& launch) {
  if (launch.closes)
    rank_.interruption->close();
  else if (!launch.opens && !update_.reduces_every_micro_step() && !update_.shards_weights())
    rank_.interruption->check();
}

void StepGraph::flush() {
  if (behind_) update_.publish();
  behind_ = false;
}

std::vector<Graph*> StepGraph::graphs() const {
  std::vector<Graph*> out;
  for (const Launch& launch : launches_)
    if (launch.graph != nullptr) out.push_back(launch.graph.get());
  return out;
}

std::vector<const GraphTrace*> StepGraph::traces() const {
  std::vector<const GraphTrace*> out;
  for (const Graph* graph : graphs())
    out.push_back(&graph->trace());
  return out;
}

std::vector<std::int64_t> StepGraph::repeats() const {
  std::vector<std::int64_t> out;
  for (const Launch& launch : launches_)
    if (launch.graph != nullptr) out.push_back(launch.repeats);
  return out;
}

void StepGraph::write_dot(const std::string& path) const {
  for (std::size_t i = 0; i < launches_.size(); ++i)
    if (launches_[i].graph != nullptr)
      launches_[i].graph->write_dot(launches_.size() == 1 ? path : concat(path, ".", i));
}

}  // namespace muo::graphs
