#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "support/files.h"

namespace muo::test {

// Writes a training text with this number of lines, 97 of which differ.
inline void write_text(const std::filesystem::path& file, int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += "line " + std::to_string(i * i % 97) + " of the text;\n";
  write_file(file, text);
}

// The records of a run's log in order; with `kind`, only records of that kind.
inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run,
                                              const std::string& kind = "") {
  std::ifstream file(run / "metrics.jsonl");
  MUO_CHECK(file.is_open(), run.string(), " has no log");
  std::vector<nlohmann::json> records;
  for (std::string line; std::getline(file, line);)
    if (nlohmann::json record = nlohmann::json::parse(line); kind.empty() || record["kind"] == kind)
      records.push_back(std::move(record));
  return records;
}

}  // namespace muo::test
