#pragma once

#include <dlfcn.h>

#include "base/check.h"
#include "support/nccl_stand_in.h"

namespace muo::test {

// The stand-in library that the plug-in has loaded, or will load.
inline const NcclStandIn& loaded_nccl_stand_in() {
  void* library = dlopen(MUO_NCCL_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(dlerror());  // NOLINT(concurrency-mt-unsafe)
  using Controls = const NcclStandIn* (*)();
  return *reinterpret_cast<Controls>(dlsym(library, "nccl_stand_in"))();
}

}  // namespace muo::test
