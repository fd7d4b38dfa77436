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

namespace muo::trainer {

// The size of one update of some weights (docs/spec/optimizer.md, "Size of an update").
struct UpdateSize {
  double rms = 0;                    // RMS of the change
  std::optional<double> ratio = {};  // rms over the weights' RMS; none if all of them are 0
  std::optional<double> u_rms = {};  // Muon's update before the learning rate; none for AdamW
};

struct UpdateSizes {
  std::int64_t step = 0;
  struct Group {
    std::string_view name;    // group_name()
    bool is_scalars = false;  // scalars that mix and gate (NumberClass)
    UpdateSize size = {};
  };
  std::vector<Group> groups;                                 // in order of parameters
  std::vector<UpdateSize> layers;                            // the matrices of each layer
  std::vector<std::pair<std::string, UpdateSize>> matrices;  // each matrix, by parameter name
};

// `squares`: RunState::update_squares(), in the order of `params`. Sets `layers` and `matrices`
// only if `each_matrix`.
UpdateSizes update_sizes(std::int64_t step, std::span<const ParamSpec> params,
                         std::span<const UpdateSquares> squares, bool each_matrix);

}  // namespace muo::trainer
