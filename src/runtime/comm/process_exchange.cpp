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

[[noreturn]] void refuse(const std::string& why) {
  throw InputError(concat("processes cannot exchange by MPI: ", why));
}

}  // namespace

std::unique_ptr<ProcessExchange> make_mpi_exchange(int process, int processes) {
  std::string missing;
  void* const library = open_beside_core(kFile, missing);
  if (library == nullptr) {
    if (missing.find("cannot open shared object file") != std::string::npos)
      missing += "; install it: apt-get install openmpi-bin";
    else if (missing.starts_with("this build has no"))
      missing += "; apt-get install libopenmpi-dev openmpi-bin, then configure and build anew";
    refuse(missing);
  }
  using Entry = const MpiPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "muograph_mpi_plugin"));
  const MpiPlugin* const plugin = of_this_build(entry);
  if (plugin == nullptr)
    refuse(concat(kFile, " belongs to another version of muograph: build all of it anew"));
  return plugin->make(process, processes, kLongest);
}

}  // namespace muo
