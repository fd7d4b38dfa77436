#include "support/program.h"

#include <fcntl.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is not in <csignal>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/check.h"
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

RunningProgram::RunningProgram(const std::vector<std::string>& arguments) {
  std::string name = program();
  std::vector<std::string> words = arguments;
  std::vector<char*> pointers = {name.data()};
  for (std::string& word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("no pipe");
  out_ = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int failed = posix_spawn(&pid_, name.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) throw Error("cannot start " + name);
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) end_by(SIGKILL);
  close(out_);
}

std::string RunningProgram::read_line() {
  std::string line;
  for (char c = 0; read(out_, &c, 1) == 1 && c != '\n';)
    line += c;
  return line;
}

int RunningProgram::end_by(int signal) {
  int status = 0;
  kill(pid_, signal);
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string until(const std::string& condition) {
  return "until { " + condition + "; } || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done; ";
}

std::string while_stopped(const std::string& commands) {
  return "kill -STOP $pid; " + commands + "; kill -CONT $pid; ";
}

}  // namespace muo::test
