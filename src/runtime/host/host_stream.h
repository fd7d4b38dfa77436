#pragma once

#include <memory>

#include "runtime/host/host_device.h"
#include "runtime/stream.h"

namespace muo {

// Outside a capture, work runs at once, in the caller. The rules of capture are CUDA's, and three
// are stricter: while a stream of a device captures, work, launches and synchronising on its other
// streams are errors unless they are part of the capture; a device makes one capture at a time; and
// at its end check_races() must accept it.
std::unique_ptr<Stream> make_host_stream(std::shared_ptr<HostDeviceState> device);
std::unique_ptr<Event> make_host_event();

}  // namespace muo
