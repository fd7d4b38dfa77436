#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace muo::fuzz {

// A reader of files that may be hostile. run() gives it these bytes as a file, uses what it
// accepts, and returns whether it did. A reader refuses with InputError; anything else that leaves
// run(), or that a sanitizer sees, is a defect. Not thread-safe.
struct Target {
  std::string_view name;  // of its folder in corpus/
  bool (*run)(std::span<const std::byte> input);
};
std::span<const Target> targets();

}  // namespace muo::fuzz
