#pragma once

#include "runtime/plugin.h"

namespace muo {

// The plug-in that `entry` returns; null if there is no entry, or if it is from another build.
template <class Plugin>
const Plugin* of_this_build(const Plugin* (*entry)()) {
  return entry != nullptr && entry()->version == kPluginVersion ? entry() : nullptr;
}

}  // namespace muo
