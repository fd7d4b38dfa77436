#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "app/report/run_history.h"

namespace muo::app {

// What a report takes of a train record; a number that is not there, or null, is NaN.
struct TrainRecord {
  TrainRecord() { series.fill(std::numeric_limits<double>::quiet_NaN()); }

  std::int64_t step = -1;
  double tokens = std::numeric_limits<double>::quiet_NaN();
  std::array<double, kSeriesNames.size()> series = {};
  double gradient_scale = std::numeric_limits<double>::quiet_NaN();
  std::string skipped = {}, bad_number = {};
};

// A line that holds a train record in the form in which the logger writes it: "kind" first, no
// blanks, no nested values, no escapes. That is nearly all of a file, and takes a tenth of the time
// that a JSON library needs. Empty: another form, or no record at all: ask the library.
std::optional<TrainRecord> parse_train_record(std::string_view line);

}  // namespace muo::app
