#include "app/train/evaluator.h"

#include <algorithm>
#include <numbers>

namespace muo {

std::int64_t evaluation_rows(const TokenData& data, std::int64_t seq_len) {
  return (data.size() - 1 + seq_len - 1) / seq_len;
}

Evaluator::Evaluator(RankContext& rank, EvalGraph& graph, const TokenData& data, std::int64_t batch,
                     std::int64_t seq_len, std::int64_t rows)
    : rank_(rank),
      graph_(graph),
      data_(data),
      batch_(batch),
      seq_len_(seq_len),
      all_rows_(evaluation_rows(data, seq_len)),
      rows_(rows > 0 ? std::min(rows, all_rows_) : all_rows_),
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
    // g all_rows / rows, without overflow for any data that fits a disk.
    const std::int64_t begin =
        (g * (all_rows_ / rows_) + g * (all_rows_ % rows_) / rows_) * seq_len_;
    const std::int64_t count = std::min(seq_len_ + 1, data_.size() - begin);
    data_.read(begin, std::span(row_).first(static_cast<std::size_t>(count)));
    std::copy_n(row_.begin(), count - 1, inputs);
    std::copy_n(row_.begin() + 1, count - 1, targets);
  }
}

EvalResult Evaluator::run() {
  graph_.reset();
  for (std::int64_t first = 0; first < rows_; first += batch_ * rank_.world) {
    fill(first + rank_.rank * batch_);
    graph_.run(inputs_, targets_);
    rank_.wait(rank_.compute);  // the batch memory is filled again next
  }
  const LossTotals totals = graph_.finish();
  EvalResult result;
  result.loss = totals.nats / totals.targets;
  if (totals.text_bytes > 0)
    result.bpb = totals.text_nats / (std::numbers::ln2 * totals.text_bytes);
  return result;
}

}  // namespace muo
