#include "base/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/terminal.h"

namespace muo {

std::string Table::text() const {
  std::vector<std::size_t> width(rows_.front().size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i)
      width[i] = std::max(width[i], row[i].size());
  std::string out;
  for (const auto& row : rows_) {
    out += fmt::format("  {:<{}}", row[0], width[0]);
    for (std::size_t i = 1; i < row.size(); ++i)
      out += fmt::format("  {:>{}}", row[i], width[i]);
    out += '\n';
  }
  return out;
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string size_text(std::int64_t bytes) {
  if (bytes >= std::int64_t{10} << 30)
    return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string flop_text(double flops) {
  std::string text = count_text(flops);
  const bool prefixed = std::isalpha(static_cast<unsigned char>(text.back())) != 0;
  text.insert(text.size() - (prefixed ? 1 : 0), " ");
  return text + "FLOP";
}

std::string percent_text(double share) { return fmt::format("{:.1f}%", 100 * share); }

}  // namespace muo
