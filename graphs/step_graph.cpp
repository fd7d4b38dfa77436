#include "graphs/step_graph.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/check.h"
#include "base/durable_files.h"
#include "kernels/metrics.h"
#include "kernels/reduce.h"
#include "kernels/take_row.h"
#include "runtime/graph_trace.h"
#include "runtime/profile_range.h"

namespace muo::graphs {
namespace {

// A scalar of a struct in device memory.
Tensor field(const Tensor& bytes, std::size_t offset, DType dtype) {
  return bytes.elements(static_cast<std::int64_t>(offset), size_of(dtype)).typed(dtype, 1);
}

}  // namespace

MicroSteps StepGraph::form_of(const StepShape& shape, bool reduces_every_micro_step) {
  if (reduces_every_micro_step) return MicroSteps::kUnrolled;
  return shape.micro_steps.value_or(shape.accumulation > kMaxUnrolled ? MicroSteps::kLoop
                                                                      : MicroSteps::kUnrolled);
}

StepGraph::StepGraph(RankContext& rank, const model::GptConfig& config, const StepShape& shape,
                     const model::RotaryTables& rotary, optim::ShardedStep& update,
                     const Rings& rings, Arena& arena)
    : rank_(rank),
      update_(update),
      rings_(rings),
      form_(form_of(shape, update.reduces_every_micro_step())),
      accumulation_(shape.accumulation),
      micro_step_tokens_(rank.world * shape.batch * config.seq_len),
      staged_batch_(rank.device, {sizeof(Batch)}, DType::kBytes, "the number of micro-steps"),
      batch_(arena.tensor({.name = "micro-steps",
                           .shape = staged_batch_.tensor().shape,
                           .dtype = DType::kBytes,
                           .category = MemoryCategory::kInput,
                           .lifespan = Lifespan::kRun})) {
  const bool loops = form_ == MicroSteps::kLoop;
  MUO_CHECK(!loops || !update.shards_weights());
  add_launches(shape.accumulation);
  for (const std::int64_t rows : shape.smaller_steps)
    if (const std::int64_t count = rows / shape.batch;
        !loops && count < accumulation_ && !captures(count))
      add_launches(count);

  const std::int64_t longest =
      loops ? shape.accumulation : std::min(shape.accumulation, kMaxUnrolled);
  const auto tokens = [&](const char* name, const Shape& rows) {
    return arena.tensor({.name = name,
                         .shape = rows,
                         .dtype = DType::kI32,
                         .category = MemoryCategory::kInput,
                         .lifespan = Lifespan::kRun});
  };
  const Shape all{longest, shape.batch, config.seq_len};
  inputs_ = tokens("inputs", all);
  targets_ = tokens("targets", all);
  if (loops) {
    const Shape one{shape.batch, config.seq_len};
    current_inputs_ = tokens("current inputs", one);
    current_targets_ = tokens("current targets", one);
  }
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
  // Each captured micro-step has its own activations. The memory plan then detects that one's are
  // dead before the next one's begin, and gives them the same memory.
  for (std::int64_t i = 0; i < (loops ? 2 : longest); ++i)
    gpts_.push_back(std::make_unique<model::Gpt>(
        config,
        model::Gpt::Size{
            .b = shape.batch, .t = config.seq_len, .backward = true, .recompute = shape.recompute},
        rotary, "micro." + std::to_string(i) + ".", arena));
}

void StepGraph::add_launches(std::int64_t step) {
  const auto add = [&](std::int64_t begin, std::int64_t micro_steps, std::int64_t repeats) {
    Launch launch;
    launch.step = step;
    launch.opens = begin == 0;
    launch.closes = begin + micro_steps == step;
    launch.begin = begin;
    launch.micro_steps = micro_steps;
    launch.repeats = repeats;
    launches_.push_back(std::move(launch));
  };
  const std::int64_t full_parts = form_ == MicroSteps::kLoop ? 0 : (step - 1) / kMaxUnrolled;
  if (full_parts >= 1) add(0, kMaxUnrolled, 1);
  if (full_parts >= 2) add(kMaxUnrolled, kMaxUnrolled, full_parts - 1);
  add(full_parts * kMaxUnrolled, step - full_parts * kMaxUnrolled, 1);
}

bool StepGraph::captures(std::int64_t step) const {
  return std::ranges::find(launches_, step, &Launch::step) != launches_.end();
}

void StepGraph::set_micro_steps(std::int64_t count) {
  if (count == micro_steps_) return;
  if (micro_steps_ != 0) rank_.wait(rank_.compute);  // the last copy may be pending
  *staged_batch_.tensor().as_struct<Batch>() = {
      .before_last = count - 1,
      .loss_scale = 1.0F / static_cast<float>(count * micro_step_tokens_)};
  rank_.compute.copy(batch_, staged_batch_.tensor());
  micro_steps_ = count;
}

void StepGraph::wait_for_weight(optim::ShardedStep::MicroStep& updated, std::size_t param) {
  const bool waits = updated.is_gathering(param);
  if (waits) mark_phase(StepPhase::kForward);
  updated.weight_needed(param);
  if (waits) mark_phase(StepPhase::kGather);
}

void StepGraph::enqueue_micro_step(const MicroStep& step) {
  const ProfileRange range(ProfileKind::kPhase,
                           ProfileRange::Payload{static_cast<std::int64_t>(step.gpt)},
                           "micro-step");
  Stream& stream = rank_.compute;
  const model::Gpt& gpt = *gpts_[step.gpt];
  const Tensor loss_scale = field(batch_, offsetof(Batch, loss_scale), DType::kF32);
  model::WeightSource weights{.weights = weights_};
  if (step.updated != nullptr && (step.first || update_.shards_weights()))
    weights.before_use = [&](std::size_t param) { wait_for_weight(*step.updated, param); };
  model::GradientSink sink{.gradients = gradients_,
                           .accumulate = !step.first && !update_.reduces_every_micro_step()};
  sink.after_losses = [this] { mark_phase(StepPhase::kLosses); };
  if (step.updated != nullptr && step.updated->reduces()) {
    sink.before_write = [&](std::size_t param) { step.updated->gradient_needed(param); };
    sink.ready = [&](std::size_t param) { step.updated->gradient_ready(param); };
  }
  gpt.forward(stream, weights, step.inputs);
  mark_phase(StepPhase::kForward);
  gpt.losses_and_backward(stream, weights, step.inputs, step.targets, loss_scale, sink);
  sum(stream, {.out = update_.totals().row(0),
               .x = gpt.row_losses(),
               .scale = loss_scale,
               .accumulate = !step.first});
  mark_phase(StepPhase::kBackward);
}

// The body of the loop cannot wait for events of what precedes it, so all weights have arrived, and
// every micro-step adds to gradients that were zeroed: 0 + x is x, and no update can distinguish
// the signs of zeros.
void StepGraph::enqueue_loop() {
  optim::ShardedStep::MicroStep last = open_->last_micro_step();
  for (std::size_t i = 0; i < weights_.size(); ++i)
    wait_for_weight(last, i);
  update_.zero_gradients();
  const Tensor pass = field(batch_, offsetof(Batch, pass), DType::kI64);
  const auto enqueue_current = [&](std::size_t gpt, optim::ShardedStep::MicroStep* updated) {
    take_row(rank_.compute, {.out = current_inputs_, .rows = inputs_, .index = pass});
    take_row(rank_.compute, {.out = current_targets_, .rows = targets_, .index = pass});
    enqueue_micro_step(
        {.gpt = gpt, .inputs = current_inputs_, .targets = current_targets_, .updated = updated});
  };
  rank_.compute.loop(
      {.passes = pass, .count = field(batch_, offsetof(Batch, before_last), DType::kI64)},
      micro_steps_ - 1, [&] { enqueue_current(0, nullptr); });
  enqueue_current(1, &last);
}

void StepGraph::mark_phase(StepPhase phase) {
  if (clock_) muo::mark_phase(rank_.compute, {.clock = clock_, .phase = static_cast<int>(phase)});
}

void StepGraph::enqueue(const Launch& launch) {
  mark_phase(StepPhase::kBetween);
  if (launch.opens) {
    open_ = update_.begin(form_ == MicroSteps::kLoop ? 0 : accumulation_ - launch.step);
    mark_phase(StepPhase::kBegin);
  }
  if (form_ == MicroSteps::kLoop)
    enqueue_loop();
  else
    for (std::int64_t i = 0; i < launch.micro_steps; ++i) {
      optim::ShardedStep::MicroStep updated =
          open_->micro_step(accumulation_ - launch.step + launch.begin + i);
      enqueue_micro_step({.gpt = static_cast<std::size_t>(i),
                          .inputs = inputs_.row(i),
                          .targets = targets_.row(i),
                          .first = launch.begin + i == 0,
                          .updated = &updated});
    }
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
  set_micro_steps(std::min<std::int64_t>(inputs_.shape[0], 2));
  for (const Launch& launch : launches_)
    if (launch.step == accumulation_) enqueue(launch);
  micro_steps_ = 0;  // the contents of memory are arbitrary afterwards
}

void StepGraph::capture() {
  const ProfileRange range(ProfileKind::kPhase, "capture");
  for (Launch& launch : launches_)
    launch.graph = rank_.compute.capture([&] { enqueue(launch); });
}

void StepGraph::run(Tensor inputs, Tensor targets, Event& copied) {
  const ProfileRange range(ProfileKind::kStep, ProfileRange::Payload{next_step_++}, "step");
  const std::int64_t count = inputs.shape[0];
  const bool loops = form_ == MicroSteps::kLoop;
  MUO_CHECK(loops ? 1 <= count && count <= accumulation_ : captures(count), count,
            " micro-steps in a step of ", accumulation_);
  set_micro_steps(count);
  std::int64_t begin = 0;
  for (const Launch& launch : launches_) {
    if (!loops && launch.step != count) continue;
    for (std::int64_t i = 0; i < launch.repeats; ++i) {
      const std::int64_t end = std::min(begin + launch.micro_steps, count);
      if (rank_.interruption != nullptr && !rank_.compute.is_host()) check_interruption(launch);
      rank_.compute.copy(inputs_.rows(0, end - begin), inputs.rows(begin, end));
      rank_.compute.copy(targets_.rows(0, end - begin), targets.rows(begin, end));
      if (launch.closes) rank_.compute.record(copied);
      if (launch.graph != nullptr) {
        const ProfileRange enqueueing(ProfileKind::kLaunch, "launch");
        rank_.compute.launch(*launch.graph);
      } else {
        enqueue(launch);
      }
      begin = end;
    }
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

std::vector<const GraphTrace*> StepGraph::traces() const { return traces_of(graphs()); }

std::vector<StepGraph::Repeats> StepGraph::repeats() const {
  std::vector<Repeats> out;
  for (const Launch& launch : launches_)
    if (launch.graph != nullptr)
      out.push_back({.replays = launch.repeats, .passes = launch.micro_steps - 1});
  return out;
}

void StepGraph::write_dot(const std::string& path) const {
  for (std::size_t i = 0; i < launches_.size(); ++i)
    if (launches_[i].graph != nullptr)
      replace_file(launches_.size() == 1 ? path : concat(path, ".", i),
                   trace_dot(launches_[i].graph->trace()));
}

}  // namespace muo::graphs
