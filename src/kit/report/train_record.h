#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "kit/report/run_history.h"

namespace muo::kit {

// The fields of a train record that a report uses. A number that is missing or null is NaN.
struct TrainRecord {
  TrainRecord() { series.fill(std::numeric_limits<double>::quiet_NaN()); }

  std::int64_t step = -1;
  double tokens = std::numeric_limits<double>::quiet_NaN();
  std::array<double, kSeriesNames.size()> series = {};
  double gradient_scale = std::numeric_limits<double>::quiet_NaN();
  std::string skipped = {}, bad_number = {};
};

// Parses a train record in the form that the logger writes: "kind" first, no blanks, no nested
// values, no escapes. Nearly all lines of a file are such records, and this takes a tenth of the
// time of a JSON library. Empty if the line has another form; the library must parse it then.
std::optional<TrainRecord> parse_train_record(std::string_view line);

}  // namespace muo::kit
