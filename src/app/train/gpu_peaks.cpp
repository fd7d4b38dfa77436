#include "app/train/gpu_peaks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace muo {
namespace {

struct Row {
  std::string_view words;  // all of them are in the name
  double flops;
};
// The first row that fits counts: special models before those they are named after.
constexpr std::array kRows = {
    Row{"gb200", 2.5e15},      Row{"b200", 2.25e15},     Row{"b100", 1.8e15},
    Row{"h200 nvl", 836e12},   Row{"h200 pcie", 836e12}, Row{"h200", 989e12},
    Row{"h100 nvl", 835e12},   Row{"h100 pcie", 756e12}, Row{"h100", 989e12},
    Row{"h800 nvl", 989e12},   Row{"h800", 756e12},      Row{"a100", 312e12},
    Row{"a800", 312e12},       Row{"a40", 149.7e12},     Row{"a30", 165e12},
    Row{"l40s", 362e12},       Row{"l4", 121e12},        Row{"rtx 5090", 209.5e12},
    Row{"rtx 4090", 165.2e12}, Row{"rtx 3090", 71e12},
};
// Of GPUs that are slower or faster than their namesake.
constexpr std::array<std::string_view, 6> kOthers = {"ti", "d", "laptop", "mobile", "max", "mig"};

// In lower case, cut at everything that is neither letter nor digit.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0)
      words.back() += static_cast<char>(std::tolower(byte));
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

}  // namespace

std::optional<double> gpu_peak_flops(std::string_view device_name) {
  const std::vector<std::string> name = words_of(device_name);
  const auto has = [&](std::string_view word) {
    return std::ranges::find(name, word) != name.end();
  };
  if (std::ranges::any_of(kOthers, has)) return std::nullopt;
  for (const Row& row : kRows)
    if (std::ranges::all_of(words_of(row.words), has)) return row.flops;
  return std::nullopt;
}

}  // namespace muo
