#pragma once

#include <string_view>

namespace muo::data {

// The function `entry` of the plug-in `file`, which links a library that `package` of Debian has.
// Throws InputError, "WHAT: why", where one of the two cannot be loaded.
void* library_entry(const char* file, const char* entry, std::string_view package,
                    std::string_view what);

}  // namespace muo::data
