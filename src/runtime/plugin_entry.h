#pragma once

#include "runtime/plugin.h"

namespace muo {

// The plug-in that `entry` returns; null if `entry` is null or from another build.
template <class Plugin>
const Plugin* of_this_build(const Plugin* (*entry)()) {
  return entry != nullptr && entry()->version == kPluginVersion ? entry() : nullptr;
}

}  // namespace muo
