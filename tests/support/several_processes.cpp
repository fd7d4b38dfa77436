#include "support/several_processes.h"

#include <gtest/gtest.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): SIGKILL of a death signal
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "support/environment.h"
#include "support/files.h"
#include "support/free_port.h"

namespace muo::test {
namespace {

// Variables by which the first process of a test configures those that it starts.
constexpr const char* kProcess = "MUO_TEST_PROCESS";
constexpr const char* kPort = "MUO_TEST_PORT";
constexpr const char* kFolder = "MUO_TEST_FOLDER";

std::filesystem::path file_of(const std::string& folder, std::size_t process) {
  return std::filesystem::path(folder) / std::to_string(process);
}

std::string result_of(const ProcessGroupOptions& options, const ProcessBody& body) {
  try {
    ProcessGroup processes(options);
    std::string said = body(processes);
    processes.leave();
    return said;
  } catch (const InputError& error) {
    return concat("InputError: ", error.what());
  } catch (const std::exception& error) {
    return concat("Error: ", error.what());
  }
}

[[noreturn]] void be_process(int process, const std::vector<int>& ranks, const ProcessBody& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto p = static_cast<std::size_t>(process);
  const std::string said = result_of({.process = process,
                                      .processes = static_cast<int>(ranks.size()),
                                      .port = std::stoi(environment(kPort).value()),
                                      .secret = [] { return "a test"; },
                                      .ranks = ranks.at(p)},
                                     body);
  std::ofstream(file_of(environment(kFolder).value(), p)) << said;
  std::exit(testing::Test::HasFailure() ? 1 : 0);  // NOLINT(concurrency-mt-unsafe)
}

pid_t start(std::size_t process) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const ScopedEnvironment mine(kProcess, std::to_string(process));
  const ScopedEnvironment shards("GTEST_TOTAL_SHARDS", std::nullopt);
  const ScopedEnvironment shard("GTEST_SHARD_INDEX", std::nullopt);
  std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::string filter = concat("--gtest_filter=", test.test_suite_name(), ".", test.name());
  std::string brief = "--gtest_brief=1";
  char* const arguments[] = {program.data(), filter.data(), brief.data(), nullptr};
  pid_t pid = -1;
  if (posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments, environ) != 0)
    throw Error("cannot start " + program);
  return pid;
}

int code_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::vector<ProcessEnd> in_processes(const std::vector<int>& ranks, const ProcessBody& body) {
  if (const auto process = environment(kProcess)) be_process(std::stoi(*process), ranks, body);
  const TemporaryDirectory folder;
  const ScopedEnvironment port(kPort, std::to_string(free_port()));
  const ScopedEnvironment path(kFolder, folder.path().string());
  std::vector<pid_t> started;
  for (std::size_t p = 0; p < ranks.size(); ++p)
    started.push_back(start(p));
  std::vector<ProcessEnd> ends;
  for (std::size_t p = 0; p < ranks.size(); ++p) {
    const int code = code_of(started[p]);
    const std::filesystem::path said = file_of(folder.path(), p);
    ends.push_back(
        {.code = code, .said = std::filesystem::exists(said) ? read_file(said) : "nothing"});
  }
  return ends;
}

}  // namespace muo::test
