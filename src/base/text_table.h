#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muo {

// A table whose columns are as wide as their widest cell. The first column (text) is left-aligned,
// the others (numbers) are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string grouped(std::int64_t number);   // 1,234,567
std::string size_text(std::int64_t bytes);  // 1.50 MiB
std::string flop_text(double flops);        // 5.03 GFLOP
std::string percent_text(double share);     // "12.5%" for 0.125

}  // namespace muo
