#include "trainer/train/update_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "optim/update_groups.h"

namespace muo::trainer {
namespace {

// Sums over several parameters.
struct Sum {
  UpdateSquares squares;
  double elements = 0;
  bool of_muon = false;

  void add(const UpdateSquares& more, const ParamSpec& param) {
    squares.change += more.change;
    squares.weight += more.weight;
    squares.u += more.u;
    elements += static_cast<double>(param.used_elements());
    of_muon = param.role == ParamRole::kMatrix;
  }
  [[nodiscard]] UpdateSize size() const {
    UpdateSize out{.rms = std::sqrt(squares.change / elements)};
    if (squares.weight > 0) out.ratio = std::sqrt(squares.change / squares.weight);
    if (of_muon) out.u_rms = std::sqrt(squares.u / elements);
    return out;
  }
};

}  // namespace

UpdateSizes update_sizes(std::int64_t step, std::span<const ParamSpec> params,
                         std::span<const UpdateSquares> squares, bool each_matrix) {
  UpdateSizes out;
  out.step = step;
  std::vector<Sum> groups, layers;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const ParamSpec& param = params[i];
    const std::string_view name = optim::group_name(param.role);
    const auto group = static_cast<std::size_t>(
        std::ranges::find(out.groups, name, &UpdateSizes::Group::name) - out.groups.begin());
    if (group == groups.size()) {
      groups.emplace_back();
      out.groups.push_back(
          {.name = name,
           .is_scalars = optim::number_class(param.role) == optim::NumberClass::kScalar});
    }
    groups[group].add(squares[i], param);
    if (!each_matrix || param.role != ParamRole::kMatrix) continue;
    Sum alone;
    alone.add(squares[i], param);
    out.matrices.emplace_back(param.name, alone.size());
    const auto layer = static_cast<std::size_t>(param.layer);
    if (layer >= layers.size()) layers.resize(layer + 1);
    layers[layer].add(squares[i], param);
  }
  for (std::size_t g = 0; g < groups.size(); ++g)
    out.groups[g].size = groups[g].size();
  std::ranges::transform(layers, std::back_inserter(out.layers), &Sum::size);
  return out;
}

}  // namespace muo::trainer
