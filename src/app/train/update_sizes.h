#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/update_squares.h"
#include "runtime/parameter.h"

namespace muo::app {

// How much one update changed some weights (docs/spec/optimizer.md, "Size of an update").
struct UpdateSize {
  double rms = 0;                    // of the change
  std::optional<double> ratio = {};  // to the RMS of the weights; none where all of them are 0
  std::optional<double> u_rms = {};  // of Muon's update before the learning rate; AdamW has none
};

struct UpdateSizes {
  std::int64_t step = 0;
  struct Group {
    std::string_view name;    // group_name()
    bool is_scalars = false;  // a few numbers that mix and gate (NumberClass)
    UpdateSize size = {};
  };
  std::vector<Group> groups;                                 // as parameters come
  std::vector<UpdateSize> layers;                            // their matrices
  std::vector<std::pair<std::string, UpdateSize>> matrices;  // by parameter
};

// `squares`: of `params`, as RunState::update_squares() has them. Layers and matrices only if
// `each_matrix`.
UpdateSizes update_sizes(std::int64_t step, std::span<const ParamSpec> params,
                         std::span<const UpdateSquares> squares, bool each_matrix);

}  // namespace muo::app
