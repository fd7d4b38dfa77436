#pragma once

#include <cstddef>
#include <string>

namespace muo::test {

// Returns nested arrays as JSON.
inline std::string nested_arrays(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace muo::test
