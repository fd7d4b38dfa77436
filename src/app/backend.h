#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/options.h"
#include "runtime/device_group.h"

namespace muo {

// Where the ranks are that the options ask for. Fills in what is automatic and adds a line to
// `notes` for each such decision. Throws InputError, with the reason and what to give instead, if
// it cannot be had.
GroupOptions choose_devices(DeviceOptions& options, std::vector<std::string>& notes);

// Whether the system has this shared library.
bool library_loads(const char* library);

// Cores that this process may use.
int usable_cores();
// Host devices where nothing else is asked: the usable cores, at most 4.
int default_devices();

// Bytes for `group`'s fullest device: of a GPU what is free, shared by its virtual ranks; of the
// host what the system can give this process without swapping (MemAvailable of /proc/meminfo, less
// where a control group's limit leaves less), shared by all ranks.
std::int64_t available_memory_per_rank(const GroupOptions& group);

}  // namespace muo
