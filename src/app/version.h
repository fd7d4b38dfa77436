#pragma once

namespace muo::app {

// "0.1.0 (commit d30ae45cf12a, Release)"; written by version.cmake.
extern const char* const kVersion;

}  // namespace muo::app
