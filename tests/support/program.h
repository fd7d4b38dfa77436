#pragma once

#include <string>
#include <vector>

namespace muo::test {

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string out;
  std::string err;
};

// Runs the program in a shell; `environment` consists of assignments before the command.
Outcome run_program(const std::string& arguments, const std::string& environment = "");

// A running program. The destructor ends it.
class RunningProgram {
 public:
  explicit RunningProgram(const std::vector<std::string>& arguments);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  [[nodiscard]] int pid() const { return pid_; }
  // Waits for the next line of its standard output, and returns it without the line end. Empty at
  // the end of the output.
  std::string read_line();
  // Sends the signal and waits. Returns the exit code, or 128 + signal.
  int end_by(int signal);

 private:
  int pid_ = -1, out_ = -1;
};

// Shell commands that wait until `condition` holds or process $pid has ended.
std::string until(const std::string& condition);

// Shell commands during which process $pid is stopped, so that it cannot write where they
// move a directory.
std::string while_stopped(const std::string& commands);

}  // namespace muo::test
