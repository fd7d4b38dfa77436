#pragma once

#include <cstdint>
#include <string>

#include "base/check.h"

namespace muo {

// What a range is: its category and colour on a profiler's timeline.
enum class ProfileKind : std::uint8_t { kStep, kLaunch, kPhase, kLayer, kCollective };

// Whether a profiler that reads NVTX, such as Nsight Systems, runs this process. Without one, or in
// a build without NVTX's headers, a ProfileRange costs this question, and its name is not put
// together.
[[nodiscard]] bool profiled() noexcept;

// The time from here to the end of the scope, on the calling thread's row of the NVTX domain
// `muograph`: the host's work, so of an enqueued or captured operation its enqueueing.
class ProfileRange {
 public:
  struct Payload {  // a number beside the name, which stays the same for all that is alike
    std::int64_t value = 0;
  };

  template <class... Parts>
  requires(sizeof...(Parts) > 0) explicit ProfileRange(ProfileKind kind, const Parts&... name) {
    if (profiled()) [[unlikely]]
      open(kind, nullptr, concat(name...));
  }
  template <class... Parts>
  requires(sizeof...(Parts) > 0)
      ProfileRange(ProfileKind kind, Payload payload, const Parts&... name) {
    if (profiled()) [[unlikely]]
      open(kind, &payload, concat(name...));
  }
  ~ProfileRange() {
    if (open_) [[unlikely]]
      close();
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  void open(ProfileKind kind, const Payload* payload, const std::string& name);
  static void close() noexcept;

  bool open_ = false;
};

}  // namespace muo
