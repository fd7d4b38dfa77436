#include "support/mpi_world.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/collective.h"
#include "support/environment.h"

namespace muo::test {
namespace {

// Reads a variable set by Open MPI's mpirun, or by another launcher.
int launcher_variable(const char* open_mpi, const char* others) {
  std::optional<std::string> text = environment(open_mpi);
  if (!text) text = environment(others);
  return text ? std::stoi(*text) : 0;
}

}  // namespace

int MpiWorld::processes() { return launcher_variable("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"); }

void MpiWorld::run(int world, const RankBody& body) {
  if (world < processes()) return SplitWorld({world}).run(body);
  const int process = launcher_variable("OMPI_COMM_WORLD_RANK", "PMI_RANK");
  static const std::unique_ptr<ProcessExchange> exchange = make_mpi_exchange(process, processes());
  std::vector<int> split(static_cast<std::size_t>(processes()));
  for (int p = 0; p < processes(); ++p)
    split[static_cast<std::size_t>(p)] = static_cast<int>(share_of(p, processes(), world).count);
  LocalRanks(world_of(split, process, exchange.get())).run(body);
}

}  // namespace muo::test
