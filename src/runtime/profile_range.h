#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"

namespace muo {

// Kind of a range: its category and colour on a profiler's timeline.
enum class ProfileKind : std::uint8_t { kStep, kLaunch, kPhase, kLayer, kCollective };

// True if a profiler that reads NVTX, such as Nsight Systems, is attached to this process.
// Otherwise, or in a build without NVTX's headers, a ProfileRange costs no more than this check:
// its name is not built.
[[nodiscard]] bool profiled() noexcept;

// A range in the NVTX domain `muograph`, from construction to the scope's end, on the calling
// thread's row. It measures the host's work: for an enqueued or captured operation, its enqueueing.
class ProfileRange {
 public:
  struct Payload {  // a number shown beside the name, so that names can be equal
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

  // Phase of the work that the calling thread enqueues: the first word of the innermost kPhase
  // range's name, with or without a profiler; empty outside of phases.
  [[nodiscard]] static std::string_view phase() { return current_phase(); }

 private:
  // Names of phases begin with a string literal, whose first word is kept by reference. Returns the
  // outer phase.
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
