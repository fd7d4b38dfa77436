#include "runtime/comm/process_exchange.h"

#include <dlfcn.h>

#include <string>

#include "base/check.h"
#include "runtime/mpi/mpi_plugin.h"
#include "runtime/plugin_entry.h"

namespace muo {
namespace {

constexpr const char* kFile = "libmuograph_mpi.so";
constexpr int kLongest = 1 << 30;  // MPI's sizes are ints
constexpr const char* kBuildMpi =
    "scripts/setup.sh --mpi && cmake build/release && cmake --build build/release";

// The plug-in; null on failure, with the reason in `missing`.
const MpiPlugin* load(std::string& missing) {
  void* const library = open_beside_core(kFile, missing);
  if (library == nullptr) {
    if (missing.find("cannot open shared object file") != std::string::npos)
      missing += "; install it: apt-get install openmpi-bin";
    else if (missing.starts_with("this build has no"))
      missing += concat("; in a clone: ", kBuildMpi);
    return nullptr;
  }
  using Entry = const MpiPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "muograph_mpi_plugin"));
  const MpiPlugin* const plugin = of_this_build(entry);
  if (plugin == nullptr)
    missing = concat(kFile, " belongs to another version of muograph: rebuild all of it");
  return plugin;
}

}  // namespace

std::string describe_mpi() {
  std::string missing;
  return load(missing) == nullptr ? missing : "usable: mpirun -n N muograph train";
}

std::unique_ptr<ProcessExchange> make_mpi_exchange(int process, int processes) {
  std::string missing;
  const MpiPlugin* const plugin = load(missing);
  if (plugin == nullptr)
    throw InputError(concat("cannot exchange between processes by MPI: ", missing));
  return plugin->make(process, processes, kLongest);
}

}  // namespace muo
