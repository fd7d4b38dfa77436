#pragma once

#include <memory>

#include "runtime/device.h"

namespace muo {

// Wraps `device` so that memory of its buffers is kept until the device itself is destroyed. When a
// rank fails, its buffers are destroyed at once, while kernels of its peers may still read them.
std::unique_ptr<Device> keep_memory(std::unique_ptr<Device> device);

}  // namespace muo
