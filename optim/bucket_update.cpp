#include "optim/bucket_update.h"

#include "kernels/muon.h"

namespace muo {

BucketUpdate::BucketUpdate(const BucketTensors& tensors, std::span<const ParamSpec> params,
                           Tensor scalars)
    : tensors_(tensors), params_(params), scalars_(scalars) {
  for (const Unit& unit : bucket().units) {
    if (!tensors.holds_state(unit)) continue;
    const Shape& shape = params[unit.param].shape;
    const double rate = bucket().rule == UpdateRule::kMuon ? muon_rate(shape[0], shape[1]) : 1.0;
    for (const Range held : ranges().state.within(unit_range(unit))) {
      if (!commit_ranges_.empty()) {
        CommitRange& last = commit_ranges_.back();
        if (last.range.end == held.begin && !(last.rate < rate || rate < last.rate) &&
            last.adam_group == unit.adam_group) {
          last.range.end = held.end;
          continue;
        }
      }
      commit_ranges_.push_back({.range = held, .rate = rate, .adam_group = unit.adam_group});
    }
  }
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
      for (const auto& [suffix, tensor] : state_)
        add(suffix, ranges().state.slice(tensor, held));
    }
  }
  append_other_state(entries);
}

}  // namespace muo
