#pragma once

#include "runtime/plugin.h"

namespace muo {

// What `entry` of a plug-in gives; null: there is none, or it is another build's.
template <class Plugin>
const Plugin* of_this_build(const Plugin* (*entry)()) {
  return entry != nullptr && entry()->version == kPluginVersion ? entry() : nullptr;
}

}  // namespace muo
