#include "kit/sweep/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>

#include "base/philox.h"
#include "base/split.h"
#include "trainer/options/option_table.h"

namespace muo::kit {
namespace {

constexpr std::string_view kLog = "log:";
constexpr std::string_view kRange = "..";
constexpr std::string_view kSeed = "seed";

template <class... Fields>
bool holds_any(const trainer::OptionRow::Field& field) {
  return (std::holds_alternative<Fields>(field) || ...);
}
bool is_whole(const trainer::OptionRow& row) {
  return holds_any<std::int64_t*, std::uint64_t*, std::optional<std::int64_t>*,
                   std::optional<trainer::BatchSizes>*>(row.field);
}
bool is_real(const trainer::OptionRow& row) {
  return holds_any<float*, double*, std::optional<double>*>(row.field);
}

// Six digits are more than any search needs, and are represented exactly on a command line.
std::string number_text(double value, bool whole) {
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value);
}

class AxisParser {
 public:
  AxisParser(const trainer::OptionRow& row, std::string_view where) : row_(row), where_(where) {
    axis_.option = row.name;
    axis_.whole = is_whole(row);
  }

  trainer::Axis list(std::span<const std::string> values) && {
    if (values.empty() || std::ranges::find(values, "") != values.end())
      throw trainer::input_error("{}: a value of the list is missing", where_);
    if (std::ssize(values) > kMaxTrials)
      throw trainer::input_error("{}: {} values: give at most {}", where_, values.size(),
                                 kMaxTrials);
    for (const std::string& value : values) {
      check(value);
      if (std::ranges::find(axis_.values, value) != axis_.values.end())
        throw trainer::input_error("{}: {} is given twice", where_, value);
      axis_.values.push_back(value);
    }
    return std::move(axis_);
  }

  trainer::Axis range(std::string_view text) && {
    if (!is_whole(row_) && !is_real(row_))
      throw trainer::input_error(
          "{}: '{}': the option is not a number, so it has no range: give A,B,C", where_, text);
    axis_.logarithmic = text.starts_with(kLog);
    std::string_view ends = text.substr(axis_.logarithmic ? kLog.size() : 0);
    std::optional<std::int64_t> count;
    if (const auto slash = ends.find('/'); slash != std::string_view::npos) {
      count = trainer::whole_number(ends.substr(slash + 1));
      if (!count || *count < 2 || *count > kMaxTrials)
        throw trainer::input_error("{}: '{}': the number of values after / must be from 2 to {}",
                                   where_, text, kMaxTrials);
      ends = ends.substr(0, slash);
    }
    const auto dots = ends.find(kRange);
    if (dots == std::string_view::npos)
      throw trainer::input_error("{}: '{}': give {}A..B", where_, text,
                                 axis_.logarithmic ? kLog : "");
    axis_.low = end_of_range(ends.substr(0, dots), text);
    axis_.high = end_of_range(ends.substr(dots + kRange.size()), text);
    if (axis_.low >= axis_.high)
      throw trainer::input_error("{}: '{}': the first number is not below the second", where_,
                                 text);
    if (axis_.logarithmic && axis_.low <= 0)
      throw trainer::input_error("{}: '{}': a logarithmic range needs numbers above 0", where_,
                                 text);
    if (axis_.whole && !axis_.logarithmic && !count) {
      count = static_cast<std::int64_t>(axis_.high - axis_.low) + 1;
      if (*count > kMaxTrials)
        throw trainer::input_error("{}: '{}': {} numbers: give at most {}, or A..B/N for N of them",
                                   where_, text, *count, kMaxTrials);
    }
    if (count) spread(*count);
    return std::move(axis_);
  }

 private:
  // Throws the option's own InputError for an invalid value.
  void check(const std::string& value) const {
    trainer::TrainOptions scratch;
    const std::vector<trainer::OptionRow> rows = trainer::option_table(scratch);
    const std::vector<std::string> values = {value};
    trainer::set_option(*std::ranges::find(rows, row_.name, &trainer::OptionRow::name), values,
                        where_);
  }

  [[nodiscard]] double end_of_range(std::string_view number, std::string_view text) const {
    const std::optional<double> value = trainer::real_number(number);
    if (!value) throw trainer::input_error("{}: '{}': '{}' is not a number", where_, text, number);
    check(std::string(number));
    return *value;
  }

  void spread(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::string value = number_text(
          value_at(axis_, static_cast<double>(i) / static_cast<double>(count - 1)), axis_.whole);
      if (axis_.values.empty() || axis_.values.back() != value)
        axis_.values.push_back(std::move(value));
    }
  }

  const trainer::OptionRow& row_;
  const std::string_view where_;
  trainer::Axis axis_;
};

// The values of a list, without spaces around them.
std::vector<std::string> list_values(std::string_view list) {
  std::vector<std::string> out;
  for (std::string_view piece : split(list, ",")) {
    while (piece.starts_with(' '))
      piece.remove_prefix(1);
    while (piece.ends_with(' '))
      piece.remove_suffix(1);
    out.emplace_back(piece);
  }
  return out;
}

// Returns the first `count` cells of a random permutation of the grid, each cell as one index.
std::vector<std::int64_t> random_cells(std::int64_t cells, std::int64_t count, std::uint64_t seed) {
  const CounterRandom random(seed, "grid");
  std::unordered_map<std::int64_t, std::int64_t> moved;  // elements that the shuffle has swapped
  const auto cell_at = [&](std::int64_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto left = static_cast<std::uint64_t>(cells - i);
    const auto other =
        i + static_cast<std::int64_t>(random.bits(static_cast<std::uint64_t>(i)) % left);
    out.push_back(cell_at(other));
    moved[other] = cell_at(i);
  }
  return out;
}

std::string random_value(const trainer::Axis& axis, std::uint64_t seed, std::int64_t point) {
  const double u = CounterRandom(seed, axis.option).uniform(static_cast<std::uint64_t>(point));
  if (!axis.is_finite()) return number_text(value_at(axis, u), axis.whole);
  return axis.values[static_cast<std::size_t>(u * static_cast<double>(axis.values.size()))];
}

// Returns the value as the option parses it ("100k" is 100000); empty if it is not a number.
std::optional<double> number_in(const trainer::OptionRow& row, const std::string& value) {
  trainer::set_option(row, std::array{value}, row.name);
  return trainer::real_number(trainer::option_text(row));
}

}  // namespace

double value_at(const trainer::Axis& axis, double position) {
  if (position >= 1) return axis.high;
  return axis.logarithmic ? axis.low * std::pow(axis.high / axis.low, position)
                          : axis.low + (axis.high - axis.low) * position;
}

Point sorted(Point point) {
  std::ranges::sort(point, {}, &Setting::option);
  return point;
}

bool is_sweepable(const trainer::OptionRow& row) {
  return row.group != trainer::kDataGroup && row.group != trainer::kRunGroup &&
         row.name != "backend" && row.name != "devices" && row.name != "ranks-per-device" &&
         row.name != "comm" && row.kind != trainer::OptionClass::kOther && !trainer::is_list(row) &&
         (!std::holds_alternative<std::string*>(row.field) || !row.choices.empty());
}

std::optional<trainer::Axis> parse_axis(const trainer::OptionRow& row,
                                        std::span<const std::string> texts,
                                        std::string_view where) {
  if (trainer::is_list(row)) return std::nullopt;
  const std::string_view text = texts.size() == 1 ? std::string_view(texts.front()) : "";
  const bool numbers = is_whole(row) || is_real(row);
  const bool is_range =
      text.starts_with(kLog) || (numbers && text.find(kRange) != std::string_view::npos);
  if (texts.size() == 1 && !is_range && text.find(',') == std::string_view::npos)
    return std::nullopt;
  if (holds_any<std::optional<trainer::BatchSizes>*>(row.field) &&
      text.find('@') != std::string_view::npos)
    return std::nullopt;  // one value, with commas
  if (!is_sweepable(row)) {
    if (texts.size() == 1) return std::nullopt;  // for example a path with a comma
    throw trainer::input_error("{}: cannot vary within a sweep: give one value", where);
  }
  AxisParser parser(row, where);
  trainer::Axis axis =
      is_range ? std::move(parser).range(text)
               : std::move(parser).list(texts.size() == 1
                                            ? list_values(text)
                                            : std::vector<std::string>(texts.begin(), texts.end()));
  axis.text = is_range ? std::string(text) : fmt::format("{}", fmt::join(axis.values, ","));
  return axis;
}

std::vector<Point> choose_points(std::span<const trainer::Axis> axes,
                                 std::optional<std::int64_t> trials, std::uint64_t seed) {
  // The seed varies fastest.
  std::vector<const trainer::Axis*> order;
  for (const trainer::Axis& axis : axes)
    order.push_back(&axis);
  const auto is_of_seeds = [](const trainer::Axis* axis) {
    return axis->option == kSeed && axis->is_finite();
  };
  std::stable_partition(order.begin(), order.end(), std::not_fn(is_of_seeds));
  const trainer::Axis* const seeds =
      order.empty() || !is_of_seeds(order.back()) ? nullptr : order.back();
  const auto per_point = seeds == nullptr ? 1 : std::ssize(seeds->values);
  if (seeds != nullptr) order.pop_back();

  std::int64_t cells = 1;
  bool finite = true;
  for (const trainer::Axis* axis : order) {
    finite = finite && axis->is_finite();
    cells = std::min<std::int64_t>(cells, kMaxTrials * kMaxTrials) *
            std::max<std::int64_t>(1, std::ssize(axis->values));
    if (!trials && !axis->is_finite())
      throw trainer::input_error("--trials: {} is a range: give the number of trials, or {}A..B/N",
                                 axis->option, axis->logarithmic ? kLog : "");
  }
  if (!trials && cells > kMaxTrials / per_point)
    throw trainer::input_error(
        "the grid has at least {} trials, more than {}: give --trials to draw some of them",
        cells * per_point, kMaxTrials);
  const std::int64_t count = trials.value_or(cells * per_point);
  if (count % per_point != 0)
    throw trainer::input_error("--trials {}: each point has {} seeds: give a multiple of {}", count,
                               per_point, per_point);
  const std::int64_t points = count / per_point;
  if (finite && points > cells)
    throw trainer::input_error("--trials {}: the grid has only {}: give at most that", count,
                               cells * per_point);

  std::vector<std::int64_t> cell_of;
  if (finite && points < cells) cell_of = random_cells(cells, points, seed);
  std::vector<Point> out;
  for (std::int64_t i = 0; i < points; ++i) {
    Point point(order.size());
    std::int64_t cell = cell_of.empty() ? i : cell_of[static_cast<std::size_t>(i)];
    for (std::size_t a = order.size(); a-- > 0;) {
      const trainer::Axis& axis = *order[a];
      point[a].option = axis.option;
      if (!finite) {
        point[a].value = random_value(axis, seed, i);
        continue;
      }
      point[a].value = axis.values[static_cast<std::size_t>(cell % std::ssize(axis.values))];
      cell /= std::ssize(axis.values);
    }
    for (std::int64_t s = 0; s < per_point; ++s) {
      Point& trial = out.emplace_back(point);
      if (seeds != nullptr)
        trial.push_back({std::string(kSeed), seeds->values[static_cast<std::size_t>(s)]});
    }
  }
  return out;
}

std::string edge_note(const trainer::Axis& axis, const std::string& best) {
  trainer::TrainOptions scratch;
  const std::vector<trainer::OptionRow> rows = trainer::option_table(scratch);
  const trainer::OptionRow& row = *std::ranges::find(rows, axis.option, &trainer::OptionRow::name);
  if (axis.option == kSeed || (!is_whole(row) && !is_real(row))) return {};
  const std::optional<double> value = number_in(row, best);
  double low = axis.low, high = axis.high;
  if (axis.is_finite()) {
    if (axis.values.size() < 3) return {};
    low = std::numeric_limits<double>::infinity(), high = -low;
    for (const std::string& text : axis.values) {
      const std::optional<double> number = number_in(row, text);
      if (!number) return {};
      low = std::min(low, *number), high = std::max(high, *number);
    }
  }
  const bool at_low =
      value <= (axis.is_finite() ? low : value_at(axis, 0.1)) && low > row.range.low;
  const bool at_high =
      value >= (axis.is_finite() ? high : value_at(axis, 0.9)) && high < row.range.high;
  if (!value || (!at_low && !at_high)) return {};
  return fmt::format("best at the edge of --{} {:.6g}..{:.6g}: try {} values", axis.option, low,
                     high, at_low ? "smaller" : "larger");
}

}  // namespace muo::kit
