#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/check.h"

namespace muo {

// Kind of a range: its category and colour on a profiler's timeline.
enum class ProfileKind : std::uint8_t { kStep, kLaunch, kPhase, kLayer, kCollective };

// True if a profiler that reads NVTX, such as Nsight Systems, is attached to this process.
[[nodiscard]] bool profiled() noexcept;

// A range in the NVTX domain `muograph`, from construction to the scope's end, on the calling
// thread's row. It measures the host's work: for an enqueued or captured operation, its enqueueing.
// Without a profiler, or NVTX's headers, and without Named it costs no more than the check: its
// name is not built.
class ProfileRange {
 public:
  struct Payload {  // a number shown beside the name, so that names can be equal
    std::int64_t value = 0;
  };

  template <class... Parts>
  requires(sizeof...(Parts) > 0) explicit ProfileRange(ProfileKind kind, const Parts&... name) {
    if (is_visible()) [[unlikely]]
      open(kind, std::nullopt, concat(name...));
  }
  template <class... Parts>
  requires(sizeof...(Parts) > 0)
      ProfileRange(ProfileKind kind, Payload payload, const Parts&... name) {
    if (is_visible()) [[unlikely]]
      open(kind, payload.value, concat(name...));
  }
  ~ProfileRange() {
    if (profiled_ || named_) [[unlikely]]
      close();
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

  // An open range of a thread.
  struct Open {
    std::uint64_t id = 0;  // of all ranges of the thread
    ProfileKind kind = ProfileKind::kPhase;
    std::string name;
    std::optional<std::int64_t> number;  // its payload
  };

  // Sees ranges on their thread.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void begins(const Open& range) = 0;
    virtual void ends() = 0;  // of the innermost one that has begun
  };

  // While it exists, new ranges of the calling thread are in open(), without a profiler too, and
  // `observer`, unless it is null, sees them. They end before it does.
  class Named {
   public:
    explicit Named(Observer* observer = nullptr);
    ~Named();
    Named(const Named&) = delete;
    Named& operator=(const Named&) = delete;

   private:
    Observer* const outer_;
  };
  // Open ranges of the calling thread, the outermost first.
  [[nodiscard]] static std::span<const Open> open();

 private:
  struct Thread;
  [[nodiscard]] static Thread& thread() noexcept;
  [[nodiscard]] static bool is_visible() noexcept;

  void open(ProfileKind kind, std::optional<std::int64_t> number, std::string name);
  void close() noexcept;

  bool profiled_ = false;  // a profiler sees it
  bool named_ = false;     // it is in open()
};

}  // namespace muo
