#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// A row of comma-separated values, as Python's csv module reads them: fields in quotes may hold
// commas, new lines and, doubled, quotes.
struct CsvRow {
  std::int64_t line = 0;  // that it starts on, from 1 on
  std::vector<std::string> fields;
};
// All rows but empty ones. Throws InputError, "WHAT: line N: reason", for quotes that do not close
// or that something follows.
std::vector<CsvRow> parse_csv(std::string_view text, std::string_view what);

}  // namespace muo::data
