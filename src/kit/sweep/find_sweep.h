#pragma once

#include <filesystem>

#include "trainer/options/options.h"

namespace muo::kit {

// Returns true if the directory holds a sweep.
[[nodiscard]] bool holds_sweep(const std::filesystem::path& directory);

// Returns the directory that a sweep will use, without creating it: --out, or sweeps/<UTC
// date>-<time>-<pid>. With --resume DIR it is DIR, which must hold a sweep. With --resume auto it
// is the sweep in --out, or the newest in sweeps/, if there is one. Throws InputError.
[[nodiscard]] std::filesystem::path find_sweep_directory(const trainer::RunOptions& options);

}  // namespace muo::kit
