#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "runtime/plugin.h"
#include "runtime/watchdog.h"

namespace muo::test {

// NOLINTBEGIN(concurrency-mt-unsafe): while no other thread of the test reads the environment

inline std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

// Sets an environment variable, or removes it if `value` is empty; the destructor restores it.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const std::optional<std::string>& value)
      : name_(name), before_(environment(name)) {
    set(value);
  }
  ~ScopedEnvironment() { set(before_); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

  void set(const std::optional<std::string>& value) {
    if (value) {
      setenv(name_, value->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// NOLINTEND(concurrency-mt-unsafe)

// Makes the SIMT tier the CUDA backend during the lifetime of this object.
class SimtForCuda {
  ScopedEnvironment plugin_{"MUO_CUDA_PLUGIN", "muograph_simt"};
};
// For groups on the SIMT tier: on a busy machine, the remaining work of a failing rank takes long.
inline WatchOptions patient_watch() { return {.grace = std::chrono::minutes(2)}; }
// Calls load_cuda() with the SIMT tier as the CUDA backend.
inline LoadedPlugin load_simt() {
  const SimtForCuda simt;
  return load_cuda();
}

}  // namespace muo::test
