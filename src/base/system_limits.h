#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// Limits of this process, read from /proc and from control groups (cgroups(7), versions 1 and 2). A
// limit holds for a group and all its descendants, so the tightest limit of this process's group
// and its ancestors applies. `root` is the directory that contains those files (tests use another
// one).
namespace muo {

struct AvailableMemory {
  std::int64_t bytes = 0;
  // " (limit of the cgroup /user.slice)", to print after the number; empty: the machine's memory.
  std::string limit = {};
};

// Bytes that this process may still allocate. The machine's memory available without swapping, and
// the rest of the control groups' limits, are divided among the run's `processes`. The rest of the
// process's own limits of address space and data (RLIMIT_AS, RLIMIT_DATA) is not divided, but the
// full stacks of `threads` threads yet to be started are subtracted from it.
[[nodiscard]] AvailableMemory available_memory(int processes = 1, int threads = 0,
                                               const std::filesystem::path& root = "/");

// If the address space is limited, makes all threads share one heap (decision
// one-heap-under-a-limit). Call this before other threads exist.
void share_heap_if_limited();

struct CpuQuota {
  int cores = 1;
  std::string group = {};  // "/user.slice"
};
// The CPU time that control groups grant per period, in cores, rounded to the nearest number >= 1
// as GNU nproc does. Empty if they set no limit.
[[nodiscard]] std::optional<CpuQuota> cpu_quota(const std::filesystem::path& root = "/");

// Explains which limit made the system refuse a thread or a process, and what to do.
[[nodiscard]] std::string refused_thread_text(const std::filesystem::path& root = "/");

// The number directly after `key` in the first line that begins with `key`. Empty if there is none.
[[nodiscard]] std::optional<std::int64_t> number_in_file(const std::filesystem::path& file,
                                                         std::string_view key = "");

// Resident bytes of this process (VmRSS), the most that it has had (VmHWM), and the anonymous ones
// among them (RssAnon), which exclude mapped files. Empty if /proc/self/status lacks the number.
[[nodiscard]] std::optional<std::int64_t> resident_memory();
[[nodiscard]] std::optional<std::int64_t> peak_resident_memory();
[[nodiscard]] std::optional<std::int64_t> anonymous_memory();

}  // namespace muo
