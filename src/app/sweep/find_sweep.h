#pragma once

#include <filesystem>

#include "app/options/options.h"

namespace muo::app {

// Whether a sweep has begun there.
[[nodiscard]] bool holds_sweep(const std::filesystem::path& directory);

// Which directory a sweep will use, without touching the disk: --out, or
// sweeps/<UTC date>-<time>-<pid>. --resume DIR: that one, which must hold a sweep; --resume auto:
// the one in --out, or the newest in sweeps/, if any. Throws InputError.
[[nodiscard]] std::filesystem::path find_sweep_directory(const RunOptions& options);

}  // namespace muo::app
