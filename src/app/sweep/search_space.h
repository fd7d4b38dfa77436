#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/option_row.h"
#include "app/options/options.h"

namespace muo::app {

// More trials than anybody waits for; what is made for them all fits into memory.
inline constexpr std::int64_t kMostTrials = 10000;

// Whether a sweep may vary the option: not what all its trials share (data, devices, directories,
// saving, logging).
[[nodiscard]] bool is_sweepable(const OptionRow& row);

// What `texts`, given for the option, says to search; empty: it is one value, the same for all.
//   A,B,C       these values, of any option
//   A..B        every whole number from A to B, or of other numbers any between them, uniformly
//   log:A..B    any between them, uniformly in the logarithm
//   A..B/N, log:A..B/N    N values, evenly spaced, the ends among them
// Several texts (an array of a configuration) are values. Throws InputError, led by `where`, for
// what is malformed, empty, given twice, out of the option's range, or not to be swept.
[[nodiscard]] std::optional<Axis> parse_axis(const OptionRow& row,
                                             std::span<const std::string> texts,
                                             std::string_view where);

struct Setting {
  std::string option;
  std::string value;  // as on a command line

  auto operator<=>(const Setting&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14
};
using Point = std::vector<Setting>;
// By the options' names: axes that came from a file and from a command line have another order.
[[nodiscard]] Point sorted(Point point);

// The trials' settings, in the order of the axes. Without `trials`: the whole grid, the last axis
// fastest, the seed faster still. With it: so many of the grid, each at most once, or, where an
// axis is a range, random points; every seed at each point. Point i depends on `seed` and i only,
// so that more trials begin with the same ones. Throws InputError.
[[nodiscard]] std::vector<Point> choose_points(std::span<const Axis> axes,
                                               std::optional<std::int64_t> trials,
                                               std::uint64_t seed);

// What to say of the best point's value, if it is the first or last of three numbers or more, or in
// the outer tenth of a range, and values beyond are possible; else empty.
[[nodiscard]] std::string edge_note(const Axis& axis, const std::string& best);

}  // namespace muo::app
