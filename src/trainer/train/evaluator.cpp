#include "trainer/train/evaluator.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace muo::trainer {

Evaluator::Evaluator(RankContext& rank, graphs::EvalGraph& graph, data::HeldOutRows rows,
                     std::int64_t batch, std::int64_t seq_len, std::int64_t max_rows)
    : rank_(rank),
      graph_(graph),
      all_rows_(std::move(rows)),
      batch_(batch),
      seq_len_(seq_len),
      rows_(max_rows > 0 ? std::min(max_rows, all_rows_.size()) : all_rows_.size()),
      memory_(rank.device.allocate_pinned(2 * batch * seq_len * 4, "evaluation batch")),
      row_(static_cast<std::size_t>(seq_len) + 1) {
  inputs_ = {.data = memory_->data(),
             .shape = {batch, seq_len},
             .dtype = DType::kI32,
             .device = rank.rank};
  targets_ = inputs_;
  targets_.data += inputs_.bytes();
}

void Evaluator::fill(std::int64_t first) {
  const RankProgress::Scope reading(Activity::kFiles);
  for (std::int64_t b = 0; b < batch_; ++b) {
    auto* inputs = inputs_.row(b).as<std::int32_t>();
    auto* targets = targets_.row(b).as<std::int32_t>();
    std::fill_n(inputs, seq_len_, 0);
    std::fill_n(targets, seq_len_, -1);
    const std::int64_t g = first + b;
    if (g >= rows_) continue;
    // g * all / rows_, without overflow for any data that fits on a disk.
    const std::int64_t all = all_rows_.size();
    const std::int64_t count = all_rows_.read(g * (all / rows_) + g * (all % rows_) / rows_, row_);
    std::copy_n(row_.begin(), count - 1, inputs);
    std::copy_n(row_.begin() + 1, count - 1, targets);
  }
}

EvalResult Evaluator::run() {
  graph_.reset();
  for (std::int64_t first = 0; first < rows_; first += batch_ * rank_.world) {
    fill(first + rank_.rank * batch_);
    if (!graph_.has_collectives()) rank_.interruption->check();
    graph_.run(inputs_, targets_);
    rank_.wait(rank_.compute);  // the next fill() overwrites the batch
  }
  rank_.interruption->close();
  const graphs::LossTotals totals = graph_.finish();
  EvalResult result;
  result.targets = std::llround(totals.targets);
  result.loss = totals.nats / totals.targets;
  if (totals.text_bytes > 0)
    result.bpb = totals.text_nats / (std::numbers::ln2 * totals.text_bytes);
  return result;
}

}  // namespace muo::trainer
