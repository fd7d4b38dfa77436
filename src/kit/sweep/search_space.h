#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/option_row.h"
#include "trainer/options/options.h"

namespace muo::kit {

// Maximum number of trials, so that their data fit into memory.
inline constexpr std::int64_t kMaxTrials = 10000;

// True if a sweep may vary the option. All trials share data, devices, directories, saving and
// logging.
[[nodiscard]] bool is_sweepable(const trainer::OptionRow& row);

// Parses the search space that `texts` give for the option. Empty if it is a single value.
//   A,B,C       these values, of any option
//   A..B        every integer from A to B; for a real option, any number between, uniformly
//   log:A..B    any number between, uniformly in the logarithm
//   A..B/N, log:A..B/N    N evenly spaced values, including both ends
// Several texts (an array in a config file) are a list of values, as for --total-batch-size, whose
// values may contain commas. Throws InputError, with a message that begins with `where`, if the
// space is malformed, empty or out of the option's range, has duplicates, or if the option cannot
// be swept.
[[nodiscard]] std::optional<trainer::Axis> parse_axis(const trainer::OptionRow& row,
                                                      std::span<const std::string> texts,
                                                      std::string_view where);

struct Setting {
  std::string option;
  std::string value;  // as on a command line

  auto operator<=>(const Setting&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14
};
using Point = std::vector<Setting>;
// The value at `position` of an axis: 0 is its low end, 1 its high end.
[[nodiscard]] double value_at(const trainer::Axis& axis, double position);

// Returns the settings sorted by option: the order of the axes depends on whether they come from a
// file or a command line.
[[nodiscard]] Point sorted(Point point);

// Returns the settings of the trials, in the order of the axes. Without `trials`, these are the
// whole grid, in which the seed varies fastest, then the last axis. With `trials`, they are that
// number of random cells of the grid, each at most once, or random points if an axis is a range,
// each with every seed. Point i depends only on `seed` and i, so a larger number of trials begins
// with the same points. Throws InputError.
[[nodiscard]] std::vector<Point> choose_points(std::span<const trainer::Axis> axes,
                                               std::optional<std::int64_t> trials,
                                               std::uint64_t seed);

// Returns advice if the best point's value is the first or last of three numbers or more, or in the
// outer tenth of a range, and the option allows values beyond it; otherwise empty.
[[nodiscard]] std::string edge_note(const trainer::Axis& axis, const std::string& best);

}  // namespace muo::kit
