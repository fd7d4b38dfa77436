#include "optim/bucket_update.h"

#include <algorithm>
#include <iterator>

#include "kernels/muon.h"

namespace muo::optim {

BucketUpdate::BucketUpdate(const BucketTensors& tensors, std::span<const ParamSpec> params,
                           Tensor scalars)
    : tensors_(tensors), params_(params), scalars_(scalars) {
  std::int64_t parts = 0;
  for (const Unit& unit : bucket().units) {
    if (!tensors.holds_state(unit)) continue;
    const Shape& shape = params[unit.param].shape;
    const double rate = bucket().rule == UpdateRule::kMuon ? muon_rate(shape[0], shape[1]) : 1.0;
    // Padding of a vocabulary is committed separately, and not counted.
    const Range whole = unit_range(unit);
    const std::int64_t padding = std::clamp(
        whole.begin + params[unit.param].used_elements() - unit.begin, whole.begin, whole.end);
    std::vector<Range> held_ranges = ranges().state.within({whole.begin, padding});
    std::ranges::copy(ranges().state.within({padding, whole.end}), std::back_inserter(held_ranges));
    for (const Range held : held_ranges) {
      CommitRange next{.range = held,
                       .is_padding = held.begin >= padding,
                       .first_part = parts,
                       .rate = rate,
                       .adam_group = unit.adam_group,
                       .param = unit.param};
      if (bucket().state_rounding == StateRounding::kStochastic)
        next.rounding = {.random = {0, params[unit.param].name},
                         .begin = unit.begin + held.begin - unit.offset};
      if (!commit_ranges_.empty() && continues(commit_ranges_.back(), next)) {
        commit_ranges_.back().range.end = held.end;
        ++commit_ranges_.back().pieces;
      } else {
        commit_ranges_.push_back(next);
      }
      if (!tensors.writes_state() || next.is_padding) continue;
      const std::int64_t count = commit_parts(held.size());
      pieces_.push_back({.param = static_cast<std::int32_t>(unit.param),
                         .parts = static_cast<std::int32_t>(count),
                         .first = parts});
      parts += count;
    }
  }
}

Tensor BucketUpdate::squares_of(const CommitRange& each) const {
  if (!squares_ || each.is_padding) return {};
  const std::int64_t parts = each.pieces * commit_parts(each.range.size() / each.pieces);
  return squares_.rows(each.first_part, each.first_part + parts)
      .view({each.pieces, parts / each.pieces, kUpdateSquares});
}

bool BucketUpdate::continues(const CommitRange& last, const CommitRange& next) {
  if (last.range.end != next.range.begin || last.range.size() != last.pieces * next.range.size() ||
      last.rate < next.rate || next.rate < last.rate || last.adam_group != next.adam_group ||
      last.is_padding != next.is_padding)
    return false;
  return !next.rounding || (last.param == next.param &&
                            last.rounding->begin + last.range.size() == next.rounding->begin);
}

Tensor BucketUpdate::state_tensor(const char* suffix, DType dtype, MemoryCategory category,
                                  Arena& arena) {
  const Tensor tensor = arena.tensor({.name = bucket().name + suffix,
                                      .shape = {ranges().state.size()},
                                      .dtype = dtype,
                                      .category = category,
                                      .lifespan = Lifespan::kRun});
  state_.push_back({suffix, tensor});
  return tensor;
}

void BucketUpdate::append_state(std::vector<StateEntry>& entries) const {
  for (const Unit& unit : bucket().units) {
    if (!tensors_.holds_state(unit)) continue;
    const ParamSpec& param = params_[unit.param];
    for (const Range held : ranges().state.within(unit_range(unit))) {
      const auto add = [&](const char* suffix, const Tensor& values) {
        entries.push_back({.name = param.name + suffix,
                           .shape = param.shape,
                           .begin = unit.begin + held.begin - unit.offset,
                           .values = values,
                           .writer = tensors_.writes_state()});
      };
      add("", tensors_.master(held));
      if (bucket().split_master) entries.back().upper = tensors_.committed_replica(held);
      for (const auto& [suffix, tensor] : state_)
        add(suffix, ranges().state.slice(tensor, held));
    }
  }
  append_other_state(entries);
}

}  // namespace muo::optim
