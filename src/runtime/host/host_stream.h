#pragma once

#include <memory>

#include "runtime/host/host_device.h"
#include "runtime/stream.h"

namespace muo {

// Outside a capture, work runs immediately on the calling thread. The rules of capture are CUDA's,
// with three stricter ones: while a stream of a device captures, work, launches and synchronisation
// on its other streams are errors unless those are part of the capture; a device makes one capture
// at a time; and the finished capture must pass check_races().
std::unique_ptr<Stream> make_host_stream(std::shared_ptr<HostDeviceState> device,
                                         StreamPriority priority);
std::unique_ptr<Event> make_host_event();

}  // namespace muo
