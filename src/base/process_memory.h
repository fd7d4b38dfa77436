#pragma once

#include <cstdint>
#include <optional>

namespace muo {

// Resident bytes of this process (VmRSS), and the anonymous ones among them (RssAnon), which
// exclude mapped files. Empty if /proc/self/status lacks the number.
[[nodiscard]] std::optional<std::int64_t> resident_memory();
[[nodiscard]] std::optional<std::int64_t> anonymous_memory();

}  // namespace muo
