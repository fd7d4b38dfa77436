#pragma once

#include <string_view>

namespace muo::data {

// Loads the plug-in `file` and returns its function `entry`. The plug-in links a library
// that Debian's `package` contains. Throws InputError, "WHAT: why", if either of the two
// cannot be loaded.
void* library_entry(const char* file, const char* entry, std::string_view package,
                    std::string_view what);

}  // namespace muo::data
