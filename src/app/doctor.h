#pragma once

#include <string>

namespace muo {

// What this machine has, one fact a line, and what to do where something is missing.
struct Diagnosis {
  std::string text;
  bool healthy = true;  // false: training cannot work here
};
Diagnosis diagnose();

}  // namespace muo
