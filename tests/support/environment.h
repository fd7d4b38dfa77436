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

// For its life, a variable of the environment has this value, or with nullopt none; then what it
// had before.
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

// For its life, the SIMT tier is what the CUDA backend is.
class SimtForCuda {
  ScopedEnvironment plugin_{"MUO_CUDA_PLUGIN", "muograph_simt"};
};
// For groups on the SIMT tier: what a failing rank has to finish first takes a busy machine long.
inline WatchOptions patient_watch() { return {.grace = std::chrono::minutes(2)}; }
// As load_cuda(), which finds the SIMT tier.
inline LoadedPlugin load_simt() {
  const SimtForCuda simt;
  return load_cuda();
}

}  // namespace muo::test
