#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace muo {

// The run failed because of a device, the numerics, a disk or a defect of muograph. The program
// exits with 3.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bad usage, configuration or input, found before any training. The program exits with 2. The text
// is one line for the user: what, where, the value, what to do. It has no source position.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));
  return out.str();
}

// Macros rather than std::source_location, which clang 14 (the parser of clang-tidy 14) lacks.
#define MUO_FAIL(...) throw ::muo::Error(::muo::concat(__FILE__, ":", __LINE__, ": ", __VA_ARGS__))

// Throws Error unless the condition holds: for callers' mistakes and failures of the environment.
// The message is formatted only on failure.
#define MUO_CHECK(condition, ...)                                           \
  do {                                                                      \
    if (!(condition)) [[unlikely]]                                          \
      MUO_FAIL("check failed: " #condition " " __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)

}  // namespace muo
