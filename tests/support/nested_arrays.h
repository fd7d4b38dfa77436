#pragma once

#include <cstddef>
#include <string>

namespace muo::test {

// JSON of arrays in one another.
inline std::string nested_arrays(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace muo::test
