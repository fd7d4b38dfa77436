#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace muo::trainer {

// Launch::by for processes started by start_processes(), which sets MUO_PROCESS, MUO_PROCESSES,
// MUO_LAUNCH and kSecretVariable.
inline constexpr const char* kOwnLauncher = "--process-per-device";
// The environment variable that holds the secret of a launch (at least kMinSecretBytes long), and
// the command that sets it, for error messages.
inline constexpr const char* kSecretVariable = "MUO_STORE_TOKEN";
inline constexpr std::size_t kMinSecretBytes = 32;
inline constexpr const char* kSecretCommand =
    "`export MUO_STORE_TOKEN=$(head -c 32 /dev/urandom | base64)`, the same on every host, and "
    "with mpirun `-x MUO_STORE_TOKEN`";

// This process's place in a launch, read from the variables of the launcher: mpirun (Open MPI),
// torchrun, srun, or this program itself.
struct Launch {
  std::string by;                    // name of the launcher
  int process = 0, processes = 1;    // index of this process; total number of processes
  int here = 0, processes_here = 1;  // the same among the processes on this host
  std::string address = {};          // process 0's host; empty: unknown
  std::optional<int> port = {};      // MASTER_PORT, which the launcher itself uses
  std::string id = {};               // the launcher's id of this launch; not secret
  std::string secret = {};           // value of kSecretVariable; empty: not set
  bool has_mpi = false;              // MPI can connect the processes, too
};

// Reads the launch from `environment`, which behaves as std::getenv. Empty if this process was not
// started as one of several. Slurm's variables count only in a step of several tasks, because a
// batch script has them too. Throws InputError if the variables contradict each other.
using Environment = std::function<const char*(const char* name)>;
std::optional<Launch> find_launch(const Environment& environment);
std::optional<Launch> find_launch();

// Returns the first host of a Slurm node list: "node03" for "node[03-07,09],other".
std::string first_host(const std::string& list);

}  // namespace muo::trainer
