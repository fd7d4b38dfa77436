#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace muo::app {

// start_processes(), by MUO_PROCESS, MUO_PROCESSES, MUO_LAUNCH and kSecretVariable.
inline constexpr const char* kOwnLauncher = "--process-per-device";
// Holds the secret of a launch, of at least so many bytes, where all its processes are given one;
// and how to give it.
inline constexpr const char* kSecretVariable = "MUO_STORE_TOKEN";
inline constexpr std::size_t kMinSecretBytes = 32;
inline constexpr const char* kSecretCommand =
    "`export MUO_STORE_TOKEN=$(head -c 32 /dev/urandom | base64)`, the same on every host, and "
    "with mpirun `-x MUO_STORE_TOKEN`";

// What a launcher tells the processes that it starts: mpirun (Open MPI), torchrun, srun, or this
// program itself.
struct Launch {
  std::string by;                    // its name
  int process = 0, processes = 1;    // this one, of all
  int here = 0, processes_here = 1;  // this one, of those on its host
  std::string address = {};          // of process 0's host; empty: the launcher does not say
  std::optional<int> port = {};      // that launcher's own, of MASTER_PORT
  std::string id = {};               // the launcher's, of this launch; others may guess it
  std::string secret = {};           // of kSecretVariable; empty: it is not set
  bool has_mpi = false;              // its processes find each other by MPI, too
};

// By `environment`, which is std::getenv. Empty: nobody started several of this process. Slurm's
// variables count in a step of several tasks only: a batch script has them, too. Throws InputError
// where they contradict each other.
using Environment = std::function<const char*(const char* name)>;
std::optional<Launch> find_launch(const Environment& environment);
std::optional<Launch> find_launch();

// The first host of Slurm's "node[03-07,09],other", "node03".
std::string first_host(const std::string& list);

}  // namespace muo::app
