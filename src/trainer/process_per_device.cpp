#include "trainer/process_per_device.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/system_error_text.h"
#include "base/threads.h"
#include "runtime/comm/handshake.h"
#include "trainer/options/launch.h"
#include "trainer/options/option_row.h"
#include "trainer/run/backend.h"
#include "trainer/train/stop_signal.h"

namespace muo::trainer {
namespace {

using Words = std::vector<std::string>;

std::vector<char*> pointers(Words& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// The command of each process: the given command, on one device.
Words command_of_one(const TrainOptions& options) {
  Words out = {std::filesystem::read_symlink("/proc/self/exe").string()};
  const std::vector<std::string>& arguments = options.run.arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--process-per-device" || word.starts_with("--devices=")) continue;
    if (word == "--devices")
      ++i;
    else
      out.push_back(word);
  }
  out.insert(out.end(), {"--devices", "1"});
  return out;
}

void set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no other thread reads it
}

bool is_on_path(std::string_view program) {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  for (std::string_view left = path == nullptr ? "" : path; !left.empty();) {
    const std::size_t end = std::min(left.find(':'), left.size());
    if (::access(concat(left.substr(0, end), "/", program).c_str(), X_OK) == 0) return true;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return false;
}

// Starts Open MPI's launcher, which ends when this process does. Its processes outlive this one by
// at most the second that mpirun grants them.
pid_t start_mpirun(const Words& command, std::int64_t processes) {
  if (!is_on_path("mpirun"))
    throw InputError(
        "--process-per-device: processes on CPUs communicate through Open MPI, but mpirun is "
        "missing: "
        "`apt-get install openmpi-bin`, or omit the option: then one process drives all devices");
  Words words = {"mpirun", "-n", std::to_string(processes), "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), command.begin(), command.end());
  const std::vector<char*> arguments = pointers(words);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) throw Error(concat("mpirun does not start: ", system_error_text(errno)));
  if (pid > 0) return pid;
  // The child gets its own process group, which may not read the terminal, so that a signal from
  // the terminal arrives once, forwarded by the parent.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);  // this thread blocks signals
  if (::getppid() == parent) ::execvp("mpirun", arguments.data());
  ::_exit(127);
}

// Waits for a process. Returns its exit code as a shell reports it, or -1 if there is no such
// process.
int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class Processes {
 public:
  // Starts `command` `count` times, with MUO_PROCESS=p in the environment of process p.
  Processes(const Words& command, std::int64_t count) {
    set("MUO_PROCESSES", std::to_string(count));
    set("MUO_LAUNCH", std::to_string(::getpid()));
    for (std::int64_t process = 0; process < count; ++process) {
      set("MUO_PROCESS", std::to_string(process));
      Words words = command;
      pid_t pid = 0;
      posix_spawnattr_t attributes;
      posix_spawnattr_init(&attributes);
      sigset_t none;
      sigemptyset(&none);
      posix_spawnattr_setsigmask(&attributes, &none);
      // Each process gets its own process group, so that a signal from the terminal arrives once,
      // forwarded by this process.
      posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
      const int error = ::posix_spawn(&pid, words.front().c_str(), nullptr, &attributes,
                                      pointers(words).data(), environ);
      posix_spawnattr_destroy(&attributes);
      if (error != 0) {
        signal_all(SIGTERM);
        throw Error(concat(words.front(), " does not start: ",
                           error == EAGAIN ? refused_thread_text() : system_error_text(error)));
      }
      pids_.push_back(pid);
    }
  }
  void signal_all(int signal) const {
    for (const pid_t pid : pids_)
      ::kill(pid, signal);
  }
  // The first exit code that is not 0.
  [[nodiscard]] int wait() const {
    int first = 0;
    for (std::size_t ended = 0; ended < pids_.size(); ++ended)
      if (const int code = wait_for(-1); first == 0) first = code;
    return first;
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace

int start_processes(const TrainOptions& options) {
  if (const std::optional<Launch> launch = find_launch())
    throw input_error("--process-per-device: {} has started {} processes already: leave it out",
                      launch->by, launch->processes);
  DeviceOptions devices = options.devices;
  std::vector<std::string> notes;
  const GroupOptions group = choose_devices(devices, notes);
  if (devices.ranks_per_device > 1)
    throw InputError(
        "--ranks-per-device: with --process-per-device each rank has a process: leave it "
        "out");
  const Words command = command_of_one(options);
  set(kSecretVariable, new_secret());
  if (group.plugin == nullptr) {
    const StopSignal signals;
    const pid_t mpirun = start_mpirun(command, group.world);
    // On any other signal mpirun kills its processes after a second; it only forwards SIGUSR1.
    const auto pass_on = [mpirun](int) { ::kill(mpirun, SIGUSR1); };
    const OnStop stop(pass_on);
    if (const int early = signals.number(); early != 0) pass_on(early);
    const int code = wait_for(mpirun), signal = signals.number();
    return signal != 0 && code != 0 ? 128 + signal : code;
  }
  const Processes processes(command, group.world);
  const StopSignal signals;
  const OnStop stop([&](int signal) { processes.signal_all(signal); });
  return processes.wait();
}

}  // namespace muo::trainer
