#include "support/program.h"

#include <sys/wait.h>

#include <cstdio>

#include "support/command.h"
#include "support/files.h"
#include "support/paths.h"

namespace muo::test {

Outcome run_program(const std::string& arguments, const std::string& environment) {
  return run_command(program() + " " + arguments, environment);
}

Outcome run_command(const std::string& command, const std::string& environment) {
  const TemporaryDirectory directory;
  const std::string err = directory.path() / "err";
  const std::string line = "{ " + environment + " " + command + "; } 2>" + err;
  Outcome outcome;
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.out.append(buffer, n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.err = read_file(err);
  return outcome;
}

std::string while_stopped(const std::string& commands) {
  return "kill -STOP $pid; " + commands + "; kill -CONT $pid; ";
}

}  // namespace muo::test
