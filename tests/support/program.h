#pragma once

#include <string>
#include <vector>

namespace muo::test {

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string out;
  std::string err;
};

// The program itself, as a shell runs it; `environment` is assignments before the command.
Outcome run_program(const std::string& arguments, const std::string& environment = "");

// The program, running. It ends with this object.
class RunningProgram {
 public:
  explicit RunningProgram(const std::vector<std::string>& arguments);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  [[nodiscard]] int pid() const { return pid_; }
  // The next line of its standard output, without its end; waits for it. Empty: it has none.
  std::string read_line();
  // Sends the signal and waits. The exit code, or 128 + signal.
  int end_by(int signal);

 private:
  int pid_ = -1, out_ = -1;
};

// Shell commands that wait until `condition` holds, or process $pid has ended.
std::string until(const std::string& condition);

// Shell commands between which process $pid does nothing; else it may write where they have moved
// a directory away.
std::string while_stopped(const std::string& commands);

}  // namespace muo::test
