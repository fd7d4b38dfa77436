#pragma once

#include <string>

namespace muo::test {

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string out;
  std::string err;
};

// The program itself, as a shell runs it; `environment` is assignments before the command.
Outcome run_program(const std::string& arguments, const std::string& environment = "");

}  // namespace muo::test
