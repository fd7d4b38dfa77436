#include "base/system_limits.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"

namespace muo {
namespace {

namespace fs = std::filesystem;

// A control group and the directory with its files.
struct Group {
  std::string name;
  fs::path directory;
};

// A mount point that shows a hierarchy of cgroups, from group `top` down.
struct Mount {
  std::string top, point;
};

// Decodes the paths of /proc/self/mountinfo, where a blank is "\040".
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out +=
          static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// True if the comma-separated `list` contains `word`.
bool list_contains(std::string_view list, std::string_view word) {
  for (;;) {
    const std::size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == word) return true;
    if (end == list.size()) return false;
    list.remove_prefix(end + 1);
  }
}

bool is_at_or_below(std::string_view group, std::string_view top) {
  return top == "/" || group == top ||
         (group.starts_with(top) && group.substr(top.size()).starts_with('/'));
}

bool path_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The mounts of `controller`'s hierarchy (cgroup v1), or of the v2 hierarchy if `controller` is
// empty.
std::vector<Mount> mounts_of(std::string_view controller, const fs::path& root) {
  std::vector<Mount> out;
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream front(line), back(line.substr(separator + 3));
    std::string skipped, top, point, type, source, options;
    front >> skipped >> skipped >> skipped >> top >> point;
    back >> type >> source >> options;
    if (controller.empty() ? type == "cgroup2"
                           : type == "cgroup" && list_contains(options, controller))
      out.push_back({.top = unescaped(top), .point = unescaped(point)});
  }
  return out;
}

// Adds group `name` of a hierarchy and its visible ancestors.
void add_with_ancestors(std::string name, std::string_view controller, const fs::path& root,
                        std::vector<Group>& out) {
  if (name.starts_with("/..")) name = "/";  // outside this cgroup namespace
  std::vector<Mount> mounts = mounts_of(controller, root);
  std::erase_if(mounts, [&](const Mount& mount) { return !is_at_or_below(name, mount.top); });
  // The usual mount point is a fallback for a mount hidden by another one, and for containers that
  // see their own group under another name.
  mounts.push_back(
      {.top = "/",
       .point = controller.empty() ? "/sys/fs/cgroup" : concat("/sys/fs/cgroup/", controller)});
  for (const Mount& mount : mounts) {
    const std::string point = (root / fs::path(mount.point).relative_path()).string();
    if (!path_exists(point)) continue;
    std::string below = mount.top == "/" ? name : name.substr(mount.top.size());
    if (below == "/") below.clear();
    for (;;) {
      if (path_exists(point + below)) out.push_back({.name = name, .directory = point + below});
      if (below.empty()) return;
      below.resize(below.rfind('/'));
      name.resize(std::max<std::size_t>(1, name.rfind('/')));
    }
  }
}

// The cgroups whose limits on `controller` apply to this process, from both cgroup v1 and v2 if the
// system has both.
std::vector<Group> groups_of(std::string_view controller, const fs::path& root) {
  std::vector<Group> out;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty() || list_contains(controllers, controller))
      add_with_ancestors(line.substr(second + 1), controllers.empty() ? "" : controller, root, out);
  }
  return out;
}

// A limit of the process itself: its name in /proc/self/limits, the usage that counts against it in
// /proc/self/status (in kB), and its name in messages.
struct OwnLimit {
  const char *name, *used, *text;
};
constexpr std::array kOwnLimits = {
    OwnLimit{"Max address space ", "VmSize:", "limit of the address space, ulimit -v"},
    OwnLimit{"Max data size ", "VmData:", "limit of the data segment, ulimit -d"}};

// The bytes left under the limit. Empty if there is no limit.
std::optional<std::int64_t> remaining_of(const OwnLimit& own, const fs::path& root) {
  const auto limit = number_in_file(root / "proc/self/limits", own.name);
  const auto used = number_in_file(root / "proc/self/status", own.used);
  if (!limit || !used) return std::nullopt;
  return *limit - *used * 1024;
}

std::int64_t stack_of_a_thread(const fs::path& root) {
  constexpr std::int64_t kUsual = std::int64_t{8} << 20;  // assumed if the stack is unlimited
  return number_in_file(root / "proc/self/limits", "Max stack size ").value_or(kUsual);
}

std::optional<std::int64_t> status_bytes(const char* field) {
  const auto kib = number_in_file("/proc/self/status", field);
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> number_in_file(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    if (std::int64_t value = 0; rest >> value) return value;
    return std::nullopt;  // "max", "unlimited"
  }
  return std::nullopt;
}

AvailableMemory available_memory(int processes, int threads, const fs::path& root) {
  struct Files {
    const char *limit, *used, *reclaimable;
  };
  // memory.high counts as a limit (decision throttling-is-a-limit).
  constexpr std::array kFiles = {
      Files{"memory.max", "memory.current", "inactive_file "},
      Files{"memory.high", "memory.current", "inactive_file "},
      Files{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}};
  AvailableMemory out{.bytes = std::numeric_limits<std::int64_t>::max()};
  if (const auto kib = number_in_file(root / "proc/meminfo", "MemAvailable:"))
    out.bytes = *kib * 1024;
  const auto take = [&out](std::int64_t bytes, std::string_view limit) {
    if (bytes < out.bytes)
      out = {.bytes = std::max<std::int64_t>(0, bytes), .limit = concat(" (", limit, ")")};
  };
  for (const Group& group : groups_of("memory", root))
    for (const Files& files : kFiles) {
      const auto limit = number_in_file(group.directory / files.limit);
      const auto used = number_in_file(group.directory / files.used);
      if (limit && used)
        take(*limit - *used +
                 number_in_file(group.directory / "memory.stat", files.reclaimable).value_or(0),
             concat("limit of the cgroup ", group.name));
    }
  out.bytes /= processes;
  for (const OwnLimit& own : kOwnLimits)
    if (const auto left = remaining_of(own, root))
      take(*left - threads * stack_of_a_thread(root), own.text);
  return out;
}

void share_heap_if_limited() {
#ifdef __GLIBC__
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there are no other threads
  if (remaining_of(kOwnLimits.front(), "/")) mallopt(M_ARENA_MAX, 1);
#endif
}

std::optional<CpuQuota> cpu_quota(const fs::path& root) {
  std::optional<CpuQuota> least;
  for (const Group& group : groups_of("cpu", root)) {
    double quota = 0, period = 0;
    if (std::ifstream both(group.directory / "cpu.max"); !(both >> quota >> period)) {
      const auto of = [&](const char* file) {
        return static_cast<double>(number_in_file(group.directory / file).value_or(0));
      };
      quota = of("cpu.cfs_quota_us"), period = of("cpu.cfs_period_us");
    }
    if (quota <= 0 || period <= 0) continue;  // "max", -1: no limit
    const int cores = std::max(1, static_cast<int>(std::lround(quota / period)));
    if (!least || cores < least->cores) least = {.cores = cores, .group = group.name};
  }
  return least;
}

std::string refused_thread_text(const fs::path& root) {
  std::string which;
  for (const Group& group : groups_of("pids", root)) {
    const auto limit = number_in_file(group.directory / "pids.max");
    const auto used = number_in_file(group.directory / "pids.current");
    if (limit && used && *used >= *limit)
      which = concat("the cgroup ", group.name, " has a limit of ", *limit,
                     " for processes and threads (pids.max)");
  }
  const fs::path limits = root / "proc/self/limits";
  for (const OwnLimit& own : kOwnLimits)
    if (const auto left = remaining_of(own, root);
        which.empty() && left && *left < stack_of_a_thread(root))
      which = concat("its stack does not fit into the ", own.text, " (",
                     *number_in_file(limits, own.name), " bytes)");
  if (const auto processes = number_in_file(limits, "Max processes "); which.empty() && processes)
    which =
        concat("this user has a limit of ", *processes, " for processes and threads (ulimit -u)");
  if (which.empty())
    which = "the machine's limit is reached (kernel.threads-max, kernel.pid_max, or memory)";
  return concat("the system refuses a further thread: ", which,
                ": raise the limit, or give fewer --devices");
}

std::optional<std::int64_t> resident_memory() { return status_bytes("VmRSS:"); }
std::optional<std::int64_t> peak_resident_memory() { return status_bytes("VmHWM:"); }
std::optional<std::int64_t> anonymous_memory() { return status_bytes("RssAnon:"); }

}  // namespace muo
