#pragma once

#include <cstddef>
#include <string>

namespace muo::test {

// JSON of nested arrays.
inline std::string nested_arrays(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace muo::test
