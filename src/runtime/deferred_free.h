#pragma once

#include <memory>

#include "runtime/device.h"

namespace muo {

// `device`, whose buffers keep their memory until the device itself is destroyed. When a rank fails
// its buffers go at once, while kernels of its peers may still read them.
std::unique_ptr<Device> keep_memory(std::unique_ptr<Device> device);

}  // namespace muo
