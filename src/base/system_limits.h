#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

// The limits of this process, read from the files of /proc and of control groups (cgroups(7),
// versions 1 and 2). A limit holds for a group and all below it, so that the tightest of this
// process' group and its ancestors counts. `root` is where the files are looked for (tests).
namespace muo {

struct AvailableMemory {
  std::int64_t bytes = 0;
  // " (limit of the cgroup /user.slice)", to stand behind the number; empty: the machine's memory.
  std::string limit = {};
};

// Bytes that this process may take from now on. What the machine has without swapping, and what
// control groups leave, it shares with the other `processes` of a run. What its own limits of
// address space and data (RLIMIT_AS, RLIMIT_DATA) leave is all its own, but for the stacks of so
// many `threads` that it will start, which count as a whole there.
[[nodiscard]] AvailableMemory available_memory(int processes = 1, int threads = 0,
                                               const std::filesystem::path& root = "/");

// Where the address space is limited, all threads share one heap from now on (decision
// one-heap-under-a-limit). To be called before there are other threads.
void share_heap_if_limited();

struct CpuQuota {
  int cores = 1;
  std::string group = {};  // "/user.slice"
};
// The CPU time that control groups grant in each period, in cores, rounded to the nearest number
// from 1 on, as GNU nproc does. Empty: they set no limit.
[[nodiscard]] std::optional<CpuQuota> cpu_quota(const std::filesystem::path& root = "/");

// Why the system has refused a thread or a process, by limits that are reached, and what to do.
[[nodiscard]] std::string refused_thread_text(const std::filesystem::path& root = "/");

// The number right behind `key` in the first line of a file that begins with it. Empty: there is
// none.
[[nodiscard]] std::optional<std::int64_t> number_in_file(const std::filesystem::path& file,
                                                         std::string_view key = "");

}  // namespace muo
