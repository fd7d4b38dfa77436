#include "trainer/run/world.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>
#include <vector>

#include "trainer/options/option_table.h"
#include "trainer/run/backend.h"
#include "trainer/run/launch_secret.h"

namespace muo::trainer {
namespace {

using nlohmann::json;

// The port if the launcher gives none: it differs between launches, but is the same in all
// processes.
int port_of(const std::string& id) {
  constexpr std::uint32_t kFirst = 20000, kCount = 10000;  // below the system's ephemeral ports
  std::uint32_t hash = 2166136261U;                        // FNV-1a
  for (const char c : id)
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<int>(kFirst + hash % kCount);
}

std::string address_of(const Launch& launch) {
  if (!launch.address.empty()) return launch.address;
  throw input_error(
      "{} has started {} processes on several hosts, but the address of process 0 is unknown: set "
      "MASTER_ADDR to an address of its host, `mpirun -x MASTER_ADDR=...`",
      launch.by, launch.processes);
}

// Values that must be equal in all processes, by name.
json identity_of(const RunConfig& config, const std::map<std::string, std::string>& more) {
  TrainOptions options = config.resolved();
  std::string version = options.run.version;
  options.devices.count.reset();
  options.devices.store_port.reset();
  options.run = {};
  options.data.paths = options.data.val_paths = {};  // paths may differ between hosts
  json out = more;
  out["the version"] = version;
  for (const OptionRow& row : option_table(options))
    out[fmt::format("--{}", row.name)] = option_text(row);
  return out;
}

// Waits for all processes; null if there is no launcher.
std::unique_ptr<LaunchedWorld> join_world(
    DeviceOptions& devices,
    const std::function<std::filesystem::path(const Launch&)>& secret_folder) {
  std::optional<Launch> launch = find_launch();
  if (!launch) return nullptr;
  if (launch->by == kOwnLauncher) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  devices.process_here = launch->here;
  devices.processes_here = launch->processes_here;
  std::vector<std::string> notes;
  DeviceOptions own = devices;
  const GroupOptions here = choose_devices(own, notes);
  devices.count = own.count;
  if (here.plugin == nullptr && !launch->has_mpi)
    throw input_error(
        "{} has not started MPI, which processes on CPUs need: start them by mpirun, or by "
        "`srun --mpi=pmix`",
        launch->by);
  ProcessGroupOptions options = process_group_options(*launch, devices, here.world);
  const SharedSecret secret(*launch, secret_folder(*launch), options.port);
  options.secret = [&] { return secret.read(); };
  // NOLINTNEXTLINE(modernize-make-unique): of an aggregate
  std::unique_ptr<LaunchedWorld> out(
      new LaunchedWorld{.launch = *std::move(launch),
                        .processes = ProcessGroup(options),
                        .exchange = nullptr,
                        .rendezvous = fmt::format("{}:{}", options.address, options.port)});
  if (here.plugin == nullptr) try {
      out->exchange = make_mpi_exchange(options.process, options.processes);
    } catch (const InputError& error) {
      out->processes.fail(error.what(), 2);
      throw;
    }
  devices.processes = &out->processes;
  devices.exchange = out->exchange.get();
  return out;
}

}  // namespace

ProcessGroupOptions process_group_options(const Launch& launch, const DeviceOptions& devices,
                                          int ranks) {
  return {.process = launch.process,
          .processes = launch.processes,
          .address = address_of(launch),
          .port = devices.store_port ? static_cast<int>(*devices.store_port)
                  : launch.port      ? *launch.port + 1
                                     : port_of(launch.id),
          .ranks = ranks};
}

std::string LaunchedWorld::text() const {
  const RankRange ranks = processes.ranks();
  return fmt::format("world: {} ranks in {} processes started by {}, rendezvous at {}; here {}",
                     processes.world(), processes.processes(), launch.by, rendezvous,
                     ranks.count == 1
                         ? fmt::format("rank {}", ranks.first)
                         : fmt::format("ranks {} to {}", ranks.first, ranks.end() - 1));
}

int run_in_world(DeviceOptions& devices,
                 const std::function<std::filesystem::path(const Launch&)>& secret_folder,
                 const std::function<int(const LaunchedWorld*)>& command) {
  const std::unique_ptr<LaunchedWorld> world = join_world(devices, secret_folder);
  if (world == nullptr) return command(nullptr);
  ProcessGroup& processes = world->processes;
  const auto fail = [&](const char* cause, int exit_code) {
    processes.fail(fmt::format("{}: {}", processes.describe(processes.process()), cause),
                   exit_code);
  };
  try {
    return command(world.get());
  } catch (const InputError& error) {
    fail(error.what(), 2);
    throw;
  } catch (const std::exception& error) {
    fail(error.what(), 3);
    throw;
  }
}

void require_single_process(std::string_view command) {
  if (const std::optional<Launch> launch = find_launch())
    throw input_error(
        "{}: {} has started {} processes, but only train and bench run in several: start it "
        "once",
        command, launch->by, launch->processes);
}

void require_same_run(RunConfig& config, const std::map<std::string, std::string>& more) {
  if (config.group.processes == nullptr) return;
  ProcessGroup& processes = *config.group.processes;
  const std::string mine = identity_of(config, more).dump();
  const std::vector<std::string> all =
      processes.gather(Channel::kRun, "the comparison of options", mine);
  for (std::size_t p = 1; p < all.size(); ++p) {
    const json first = json::parse(mine), other = json::parse(all[p]);
    for (const auto& [name, value] : first.items())
      if (const json theirs = other.value(name, json()); theirs != value)
        throw input_error(
            "processes differ in {}: {} in process 0, {} in {}: give all the same value", name,
            value.get<std::string>(), theirs.is_string() ? theirs.get<std::string>() : "none",
            processes.describe(static_cast<int>(p)));
  }
  DeviceOptions& saved = config.options.devices;
  saved.count = config.world() / config.group.ranks_per_device;
  if (config.group.plugin == nullptr) saved.comm = Comm::kHost;
}

MemoryBudget agreed_budget(const RunConfig& config) {
  constexpr const char* kSite = "the agreement on memory";
  MemoryBudget budget = memory_budget(config);
  ProcessGroup* const processes = config.group.processes;
  if (processes == nullptr) return budget;
  using Numbers = std::array<std::int64_t, 3>;
  const Numbers mine = {budget.to_plan, budget.available, budget.process};
  const auto all = processes->gather(Channel::kRun, kSite, json(mine).dump());
  const Numbers least =
      json::parse(processes->broadcast(Channel::kRun, kSite, [&] {
        Numbers out = mine;
        for (const std::string& text : all) {
          const Numbers theirs = json::parse(text).get<Numbers>();
          std::ranges::transform(out, theirs, out.begin(),
                                 [](std::int64_t a, std::int64_t b) { return std::min(a, b); });
        }
        return json(out).dump();
      })).get<Numbers>();
  return {.to_plan = least[0],
          .available = least[1],
          .process = least[2],
          .limit = least[1] == budget.available ? budget.limit : ""};
}

std::string run_on_root(ProcessGroup* processes, std::string_view site,
                        const std::function<std::string()>& make) {
  return processes == nullptr ? make() : processes->broadcast(Channel::kRun, site, make);
}

}  // namespace muo::trainer
