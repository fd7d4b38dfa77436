#include "trainer/options/launch.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "trainer/options/option_row.h"

namespace muo::trainer {
namespace {

// The names of a launcher's environment variables.
struct Variables {
  const char* by;
  const char* process;
  const char* processes;
  const char* here;
  const char* processes_here;
  const char* id;
};
// In order of precedence: torchrun and mpirun come before srun, because they also run inside Slurm
// tasks.
constexpr std::array kLaunchers = {
    Variables{kOwnLauncher, "MUO_PROCESS", "MUO_PROCESSES", "MUO_PROCESS", "MUO_PROCESSES",
              "MUO_LAUNCH"},
    Variables{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
              "TORCHELASTIC_RUN_ID"},
    Variables{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    Variables{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
              "SLURM_JOB_ID"},
};

constexpr int kMaxPort = 65534;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] std::string text(const char* name) const {
    const char* value = name == nullptr ? nullptr : environment_(name);
    return value == nullptr ? "" : value;
  }
  [[nodiscard]] std::optional<int> number(const char* name) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    const std::optional<std::int64_t> parsed = whole_number(value);
    if (!parsed || *parsed < 0 || *parsed > kMax)
      throw InputError(concat(name, "=", value,
                              ": not a valid number: unset it, or start the processes with "
                              "mpirun, srun or torchrun"));
    return static_cast<int>(*parsed);
  }

 private:
  static constexpr std::int64_t kMax = 1 << 20;
  const Environment& environment_;
};

// Returns the number of tasks on node `node` of a Slurm step, from the list of its nodes' tasks:
// "2(x3),1". Empty if the list is malformed or has no such node.
std::optional<int> tasks_of_node(std::string_view list, std::optional<std::int64_t> node) {
  while (node && !list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    const std::size_t times = part.find("(x");
    const auto tasks = whole_number(part.substr(0, times));
    const auto nodes = times == std::string_view::npos
                           ? 1
                           : whole_number(part.substr(times + 2, part.size() - times - 3));
    if (!tasks || !nodes) return std::nullopt;
    if (*node < *nodes) return static_cast<int>(*tasks);
    *node -= *nodes;
    list.remove_prefix(std::min(part.size() + 1, list.size()));
  }
  return std::nullopt;
}

}  // namespace

std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string::npos) return {};
    const std::string ranges = list.substr(at + 1, close - at - 1);
    host += ranges.substr(0, ranges.find_first_of(",-"));
    at = close;
  }
  return host;
}

std::optional<Launch> find_launch(const Environment& environment) {
  const Reader read(environment);
  for (const Variables& names : kLaunchers) {
    const auto process = read.number(names.process), processes = read.number(names.processes);
    // Some containers set the first two variables, but not this one, for every process.
    const auto here = read.number(names.here);
    if (!process || !processes || !here || *processes < 2) continue;
    const bool slurm = names.processes_here == nullptr;
    Launch out{.by = names.by, .process = *process, .processes = *processes};
    out.here = *here;
    out.processes_here =
        slurm ? tasks_of_node(read.text("SLURM_STEP_TASKS_PER_NODE"), read.number("SLURM_NODEID"))
                    .value_or(out.here + 1)
              : read.number(names.processes_here).value_or(out.here + 1);
    if (out.process >= out.processes || out.here >= out.processes_here)
      throw InputError(concat(names.process, "=", out.process, " of ", names.processes, "=",
                              out.processes, ", ", names.here, "=", out.here, " of ",
                              out.processes_here, " on this host: contradictory: unset them, or ",
                              "start the processes with ", names.by));
    out.address = read.text("MASTER_ADDR");
    if (out.address.starts_with('[') && out.address.ends_with(']'))  // IPv6 address as in a URL
      out.address = out.address.substr(1, out.address.size() - 2);
    out.port = read.number("MASTER_PORT");
    if (out.port && (*out.port < 1 || *out.port > kMaxPort))
      throw InputError(concat("MASTER_PORT=", *out.port, ": the rendezvous uses the next port: ",
                              "give 1 to ", kMaxPort, ", or --store-port"));
    if (out.address.empty() && out.processes_here == out.processes) out.address = "127.0.0.1";
    if (out.address.empty() && slurm) out.address = first_host(read.text("SLURM_STEP_NODELIST"));
    out.id = concat(read.text(names.id), slurm ? "." + read.text("SLURM_STEP_ID") : "");
    out.secret = read.text(kSecretVariable);
    if (!out.secret.empty() && out.secret.size() < kMinSecretBytes)
      throw InputError(concat(kSecretVariable, ": too short: ", out.secret.size(), " bytes, of ",
                              kMinSecretBytes, " required: ", kSecretCommand));
    out.has_mpi = !read.text("PMIX_RANK").empty();
    return out;
  }
  if (const auto processes = read.number("PMI_SIZE"); read.number("PMI_RANK") && processes > 1)
    throw InputError(concat("PMI_SIZE=", *processes,
                            ": unsupported launcher (MPICH, Intel or Cray MPI): start the ",
                            "processes with Open MPI's mpirun, srun or torchrun, or start one ",
                            "process for all devices"));
  return std::nullopt;
}

std::optional<Launch> find_launch() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread changes the environment
  return find_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace muo::trainer
