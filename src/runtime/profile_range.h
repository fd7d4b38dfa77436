#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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
  requires(sizeof...(Parts) > 0) explicit ProfileRange(ProfileKind kind, const Parts&... name)
      : outer_phase_(enter(kind, name...)) {
    if (profiled()) [[unlikely]]
      open(kind, nullptr, concat(name...));
  }
  template <class... Parts>
  requires(sizeof...(Parts) > 0)
      ProfileRange(ProfileKind kind, Payload payload, const Parts&... name)
      : outer_phase_(enter(kind, name...)) {
    if (profiled()) [[unlikely]]
      open(kind, &payload, concat(name...));
  }
  ~ProfileRange() {
    current_phase() = outer_phase_;
    if (open_) [[unlikely]]
      close();
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

  // What the calling thread enqueues: the first word of its innermost phase's name, profiler or
  // not; empty outside.
  [[nodiscard]] static std::string_view phase() { return current_phase(); }

 private:
  // The names of phases begin with a literal, which outlives all that keeps its word. Returns the
  // phase outside.
  template <std::size_t N, class... Rest>
  static std::string_view enter(ProfileKind kind, const char (&first)[N], const Rest&... /*rest*/) {
    const std::string_view outer = current_phase();
    const std::string_view name(first, N - 1);
    if (kind == ProfileKind::kPhase) current_phase() = name.substr(0, name.find(' '));
    return outer;
  }
  template <class... Parts>
  static std::string_view enter(ProfileKind /*kind*/, const Parts&... /*name*/) {
    return current_phase();
  }
  [[nodiscard]] static std::string_view& current_phase() noexcept;

  void open(ProfileKind kind, const Payload* payload, const std::string& name);
  static void close() noexcept;

  const std::string_view outer_phase_;
  bool open_ = false;
};

}  // namespace muo
