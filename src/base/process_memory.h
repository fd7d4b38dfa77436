#pragma once

#include <cstdint>
#include <optional>

namespace muo {

// Bytes of this process that are in memory now (VmRSS); of them those that are no file's (RssAnon),
// which what is mapped and read does not add to. Empty: /proc/self/status does not say.
[[nodiscard]] std::optional<std::int64_t> resident_memory();
[[nodiscard]] std::optional<std::int64_t> anonymous_memory();

}  // namespace muo
