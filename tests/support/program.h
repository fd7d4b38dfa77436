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

// Shell commands between which process $pid does nothing; else it may write where they have moved
// a directory away.
std::string while_stopped(const std::string& commands);

}  // namespace muo::test
