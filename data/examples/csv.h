#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// A row of comma-separated values, as read by Python's csv module: quoted fields may contain
// commas, newlines and doubled quotes.
struct CsvRow {
  std::int64_t line = 0;  // line on which it starts, from 1
  std::vector<std::string> fields;
};
// Returns all rows except empty ones. Throws InputError, "WHAT: line N: reason", for unclosed
// quotes and for text after a closing quote.
std::vector<CsvRow> parse_csv(std::string_view text, std::string_view what);

}  // namespace muo::data
