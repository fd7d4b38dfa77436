#include "graphs/eval_graph.h"

#include "kernels/reduce.h"

namespace muo::graphs {
namespace {

// Collectives of evaluation run between steps; their tags differ from the plan's.
constexpr Tag kEvalTag = 0xE0000000;
constexpr Tag kEvalGatherTag = kEvalTag + 1;

Tensor run_tensor(Arena& arena, const std::string& name, Shape shape, DType dtype,
                  MemoryCategory category) {
  return arena.tensor({.name = name,
                       .shape = shape,
                       .dtype = dtype,
                       .category = category,
                       .lifespan = Lifespan::kRun});
}

}  // namespace

Tensor make_token_bytes(const model::GptConfig& config, Arena& arena) {
  return run_tensor(arena, "token_bytes", {config.vocab_size}, DType::kI32, MemoryCategory::kInput);
}

void fill_token_bytes(Stream& stream, Tensor token_bytes, std::span<const std::int32_t> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  MUO_CHECK(count <= token_bytes.numel(), count, " token sizes for a vocabulary of ",
            token_bytes.numel());
  stream.zero(token_bytes);
  if (count > 0) stream.copy(token_bytes.elements(0, count), host_tensor(values.data(), {count}));
  stream.synchronize();
}

EvalGraph::EvalGraph(RankContext& rank, const model::GptConfig& config, std::int64_t batch,
                     std::int64_t seq_len, const model::RotaryTables& rotary, PassWeights weights,
                     Tensor token_bytes, Arena& arena, EvalOutput output, const std::string& name)
    : rank_(rank),
      weights_(weights),
      token_bytes_(token_bytes),
      inputs_(run_tensor(arena, name + "inputs", {batch, seq_len}, DType::kI32,
                         MemoryCategory::kInput)),
      targets_(run_tensor(arena, name + "targets", {batch, seq_len}, DType::kI32,
                          MemoryCategory::kInput)),
      read_totals_(rank.device, {4}, DType::kF64, "totals of an evaluation"),
      gpt_(config, {.b = batch, .t = seq_len, .backward = false}, rotary, name, arena) {
  const auto make = [&](const char* of, Shape shape, DType dtype) {
    return run_tensor(arena, name + of, shape, dtype, MemoryCategory::kMetrics);
  };
  if (output == EvalOutput::kTotals) {
    totals_ = make("totals", {4}, DType::kF64);
  } else {
    losses_ = make("position_losses", {batch * seq_len}, DType::kF32);
    predictions_ = make("predictions", {batch * seq_len}, DType::kI32);
  }
}

void EvalGraph::enqueue() {
  weights_.pass(kEvalGatherTag, [this](const model::WeightSource& weights) {
    gpt_.forward(rank_.compute, weights, inputs_);
    gpt_.losses(rank_.compute, weights, targets_, predictions_);
  });
  if (losses_) {
    rank_.compute.copy(losses_, gpt_.row_losses());
    return;
  }
  loss_totals(rank_.compute, {.out = totals_,
                              .losses = gpt_.row_losses(),
                              .targets = targets_.view({targets_.numel()}),
                              .bytes = token_bytes_});
}

void EvalGraph::warm_up() {
  enqueue();
  if (totals_) static_cast<void>(finish());
}

void EvalGraph::capture() {
  graph_ = rank_.compute.capture([&] { enqueue(); });
}

void EvalGraph::reset() { rank_.compute.zero(totals_); }

void EvalGraph::run(Tensor inputs, Tensor targets) {
  rank_.compute.copy(inputs_, inputs);
  rank_.compute.copy(targets_, targets);
  if (graph_ != nullptr)
    rank_.compute.launch(*graph_);
  else
    enqueue();
}

void EvalGraph::read(Tensor losses, Tensor predictions) {
  MUO_CHECK(losses_, "an evaluation with EvalOutput::kTotals has no positions to read");
  rank_.compute.copy(losses.view(losses_.shape), losses_);
  rank_.compute.copy(predictions.view(predictions_.shape), predictions_);
}

LossTotals EvalGraph::finish() {
  MUO_CHECK(totals_, "an evaluation with EvalOutput::kPositions has no totals");
  rank_.wait(rank_.compute);
  if (rank_.world > 1) {
    rank_.communicator.all_reduce(rank_.comm, kEvalTag, totals_, totals_);
    rank_.wait(rank_.comm);
  }
  rank_.compute.copy(read_totals_.tensor(), totals_);
  rank_.wait(rank_.compute);
  const auto* values = read_totals_.tensor().as<double>();
  return {.nats = values[0], .targets = values[1], .text_nats = values[2], .text_bytes = values[3]};
}

}  // namespace muo::graphs
