#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace muo {

// The median of at least one value. For an even number of values, the upper of the two middle ones.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace muo
