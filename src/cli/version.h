#pragma once

namespace muo::cli {

// "0.1.0 (commit d30ae45cf12a, Release)"; written by version.cmake.
extern const char* const kVersion;

}  // namespace muo::cli
