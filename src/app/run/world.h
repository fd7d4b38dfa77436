#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "app/options/launch.h"
#include "app/options/options.h"
#include "app/run/memory_fit.h"
#include "app/run/run_config.h"
#include "runtime/comm/process_exchange.h"
#include "runtime/comm/process_group.h"

namespace muo::app {

// A world that a launcher has started several processes of, each with the ranks of its --devices.
struct LaunchedWorld {
  Launch launch;
  ProcessGroup processes;
  std::unique_ptr<ProcessExchange> exchange;

  // "world: 4 ranks in 2 processes that mpirun started; here ranks 0 to 1, meeting at ...".
  [[nodiscard]] std::string text() const;
  std::string meeting;  // HOST:PORT
};

// Where and as what this process, which has `ranks` ranks, meets the others. The port is
// --store-port, else the one after the launcher's MASTER_PORT, else one derived from the launch's
// id. The secret is left to be set. Throws InputError if the address of process 0 is unknown.
ProcessGroupOptions meeting_of(const Launch& launch, const DeviceOptions& devices, int ranks);

// Runs `command` in the world that a launcher has started, when all processes are there, with this
// process' part of it in `devices`; or alone, with null. What it throws ends the other processes,
// too. `folder_of_secret` names the folder of SharedSecret, which all processes see. Throws
// InputError, and Error if some do not come.
int run_in_world(DeviceOptions& devices,
                 const std::function<std::filesystem::path(const Launch&)>& folder_of_secret,
                 const std::function<int(const LaunchedWorld*)>& command);

// Throws InputError for a command of one process that was started several times.
void require_alone(std::string_view command);

// Of a world's processes the first finds out whether all were told the same: its options, and
// `more` by name. If not, the run ends everywhere, with the first difference. Then the options,
// which are saved, are those of one process with all devices.
void require_same_run(RunConfig& config, const std::map<std::string, std::string>& more);

// The least of every process.
MemoryBudget agreed_budget(const RunConfig& config);

// What `make` returns, in process 0 of the world, where it runs, or here.
std::string made_by_first(ProcessGroup* processes, std::string_view site,
                          const std::function<std::string()>& make);

}  // namespace muo::app
