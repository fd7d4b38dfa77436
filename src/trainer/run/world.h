#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/comm/process_exchange.h"
#include "runtime/comm/process_group.h"
#include "trainer/options/launch.h"
#include "trainer/options/options.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {

// A world of several processes started by a launcher, each with the ranks of its --devices.
struct LaunchedWorld {
  Launch launch;
  ProcessGroup processes;
  std::unique_ptr<ProcessExchange> exchange;

  // "world: 4 ranks in 2 processes started by mpirun, rendezvous at HOST:PORT; here ranks 0 to 1"
  [[nodiscard]] std::string text() const;
  std::string rendezvous;  // HOST:PORT
};

// Rendezvous of this process, which has `ranks` ranks. The port is --store-port, otherwise the
// launcher's MASTER_PORT + 1, otherwise one derived from the launch's id. The caller sets the
// secret. Throws InputError if the address of process 0 is unknown.
ProcessGroupOptions process_group_options(const Launch& launch, const DeviceOptions& devices,
                                          int ranks);

// Joins the world that a launcher has started: waits for all processes, sets this process's part of
// it in `devices`, and runs command(world). Without a launcher, runs command(nullptr). An exception
// of `command` also ends the other processes. `secret_folder` returns the folder of SharedSecret,
// which all processes must see. Throws InputError, and Error if a process does not arrive.
int run_in_world(DeviceOptions& devices,
                 const std::function<std::filesystem::path(const Launch&)>& secret_folder,
                 const std::function<int(const LaunchedWorld*)>& command);

// Throws InputError if a launcher has started several processes of a single-process command.
void require_single_process(std::string_view command);

// Checks in process 0 that all processes of the world have the same options and the same values of
// `more`, by name. If not, the run ends in all processes, naming the first difference. Then changes
// the options to be saved to those of one process with all devices. Collective.
void require_same_run(RunConfig& config, const std::map<std::string, std::string>& more);

// The minimum over all processes. Collective.
MemoryBudget agreed_budget(const RunConfig& config);

// Runs `make` in process 0 and returns its result in every process. If `processes` is null, runs it
// here.
std::string run_on_root(ProcessGroup* processes, std::string_view site,
                        const std::function<std::string()>& make);

}  // namespace muo::trainer
