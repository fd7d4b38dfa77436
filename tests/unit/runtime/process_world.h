#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_descriptor.h"
#include "runtime/comm/frame_connection.h"
#include "runtime/comm/handshake.h"
#include "runtime/comm/process_group.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/rendezvous.h"
#include "support/free_port.h"

namespace muo::test {

using std::chrono::milliseconds;

// The secret of every launch in these tests.
inline const std::string kSecret = "a secret";

inline ProcessGroupOptions options_of(int process, int processes, int port) {
  return {.process = process,
          .processes = processes,
          .port = port,
          .secret = [] { return kSecret; },
          .join_timeout = std::chrono::seconds(20),
          .heartbeat = milliseconds(20),
          .heartbeat_timeout = std::chrono::seconds(20)};
}

// A connection to a port, without a handshake.
inline FileDescriptor connect_to_port(int port, const std::string& host = "127.0.0.1") {
  int error = 0;
  return connect_to(resolve_name(host, port).addresses.at(0), milliseconds(2000), error);
}

// A connection that joins the group that listens there, up to the handshake.
inline FrameConnection joining(FileDescriptor socket, const std::string& secret = kSecret) {
  return {std::move(socket), Handshake(Handshake::Side::kJoining, secret)};
}

// Kind and text of the exception that `body` throws, or "".
inline std::string outcome_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const PeerFailed& e) {
    return concat("PeerFailed: ", e.what());
  } catch (const InputError& e) {
    return concat("InputError: ", e.what());
  } catch (const Error& e) {
    return concat("Error: ", e.what());
  }
  return {};
}

using Body = std::function<void(ProcessGroup&)>;

// Runs `body` with a group for each of the options, each on its own thread. Returns the outcomes,
// in the order of the options.
inline std::vector<std::string> run_groups(const std::vector<ProcessGroupOptions>& options,
                                           const Body& body) {
  std::vector<std::string> outcomes(options.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < options.size(); ++i)
    threads.emplace_back([&, i] {
      outcomes[i] = outcome_of([&] {
        ProcessGroup group(options[i]);
        body(group);
      });
    });
  threads.clear();
  return outcomes;
}

inline std::vector<ProcessGroupOptions> options_of_all(int processes, int port) {
  std::vector<ProcessGroupOptions> options;
  options.reserve(static_cast<std::size_t>(processes));
  for (int process = 0; process < processes; ++process)
    options.push_back(options_of(process, processes, port));
  return options;
}

inline std::vector<std::string> run_world(int processes, const Body& body) {
  return run_groups(options_of_all(processes, free_port()), body);
}

// A process that runs `body`; the destructor kills it. Make it before there are threads.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<void()>& body) : pid_(::fork()) {
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) ::_exit(outcome_of(body).empty() ? 0 : 1);
  }
  ~ChildProcess() { end_by(SIGKILL); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void stop() const {
    int status = 0;
    ::kill(pid_, SIGSTOP);
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void go_on() const { ::kill(pid_, SIGCONT); }
  // Its exit code; -1 if a signal ended it.
  int wait() {
    int status = 0;
    if (pid_ > 0) static_cast<void>(::waitpid(pid_, &status, 0));
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void end_by(int signal) {
    if (pid_ > 0) ::kill(pid_, signal);
    wait();
  }

 private:
  pid_t pid_;
};

// A value shared with ChildProcesses that are made later. It is never freed.
template <class T>
T& shared_with_children() {
  void* const memory =
      ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  MUO_CHECK(memory != MAP_FAILED);
  return *new (memory) T();
}

}  // namespace muo::test
