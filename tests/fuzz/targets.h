#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace muo::fuzz {

// A reader of untrusted files. run() passes it the bytes as a file, uses the result, and returns
// whether the file was accepted. A reader rejects a file with InputError; any other exception or a
// sanitizer's report is a defect. Not thread-safe.
struct Target {
  std::string_view name;  // also the name of its folder in corpus/
  bool (*run)(std::span<const std::byte> input);
};
std::span<const Target> targets();

}  // namespace muo::fuzz
