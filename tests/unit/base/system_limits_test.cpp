#include "base/system_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/files.h"

namespace muo {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// A fake system: files from which the limits of this process are read.
class SystemLimits : public testing::Test {
 protected:
  SystemLimits() { file("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n"); }

  void file(const std::string& name, const std::string& contents) const {
    std::filesystem::create_directories((root() / name).parent_path());
    test::write_file(root() / name, contents);
  }
  void group_is(const std::string& lines) const { file("proc/self/cgroup", lines); }
  // Writes a version 2 cgroup with its memory in MiB; a negative limit means no limit.
  void memory_of(const std::string& directory, int limit, int used, int reclaimable = 0) const {
    file(directory + "/memory.max", limit < 0 ? "max\n" : std::to_string(limit * kMiB) + "\n");
    file(directory + "/memory.current", std::to_string(used * kMiB) + "\n");
    file(directory + "/memory.stat", "anon 5\nactive_file 7\ninactive_file " +
                                         std::to_string(reclaimable * kMiB) + "\nslab 3\n");
  }
  [[nodiscard]] std::filesystem::path root() const { return directory_.path(); }
  void expect_memory(std::int64_t mib, const std::string& limit) const {
    const AvailableMemory memory = available_memory(1, 0, root());
    EXPECT_EQ(memory.bytes, mib * kMiB);
    EXPECT_EQ(memory.limit, limit.empty() ? "" : " (" + limit + ")");
  }
  void expect_quota(int cores, const std::string& group) const {
    const std::optional<CpuQuota> quota = cpu_quota(root());
    ASSERT_TRUE(quota);
    EXPECT_EQ(quota->cores, cores);
    EXPECT_EQ(quota->group, group);
  }

 private:
  test::TemporaryDirectory directory_;
};

const std::string kVersion2 =
    "21 20 0:19 / /proc rw - proc proc rw\n"
    "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(SystemLimits, DefaultToTheMachine) {
  expect_memory(8192, "");
  EXPECT_FALSE(cpu_quota(root()));
  EXPECT_EQ(available_memory(4, 0, root()).bytes, 2048 * kMiB);
}

TEST_F(SystemLimits, MemoryIsLimitedByTheTightestAncestor) {
  file("proc/self/mountinfo", kVersion2);
  group_is("0::/user.slice/job.scope\n");
  const std::string slice = "sys/fs/cgroup/user.slice";
  memory_of(slice + "/job.scope", 1024, 200);
  expect_memory(824, "limit of the cgroup /user.slice/job.scope");
  memory_of(slice + "/job.scope", -1, 100);
  expect_memory(8192, "");
  memory_of(slice, 900, 500);
  expect_memory(400, "limit of the cgroup /user.slice");
  memory_of(slice, 900, 500, 50);
  expect_memory(450, "limit of the cgroup /user.slice");
  file(slice + "/job.scope/memory.high", std::to_string(300 * kMiB));
  expect_memory(200, "limit of the cgroup /user.slice/job.scope");
  EXPECT_EQ(available_memory(2, 0, root()).bytes, 100 * kMiB);
  memory_of(slice, 900, 1000);
  expect_memory(0, "limit of the cgroup /user.slice");
}

// In a container with its own cgroup namespace, the top of the mount is the process's own group.
TEST_F(SystemLimits, AContainersNamespaceIsAtTheMountPoint) {
  file("proc/self/mountinfo", kVersion2);
  group_is("0::/\n");
  memory_of("sys/fs/cgroup", 512, 10);
  expect_memory(502, "limit of the cgroup /");
  memory_of("sys/fs/other", 1, 0);
  group_is("0::/../other\n");  // moved out of the namespace
  expect_memory(502, "limit of the cgroup /");
}

TEST_F(SystemLimits, Version1HasAHierarchyPerController) {
  file("proc/self/mountinfo",
       "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
       "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
       "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  group_is("5:memory:/slurm/job_7/step_0\n4:cpu,cpuacct:/slurm/job_7\n1:name=systemd:/x\n0::/\n");
  const std::string job = "sys/fs/cgroup/memory/slurm/job_7";
  std::filesystem::create_directories(root() / "sys/fs/cgroup/unified");
  file(job + "/memory.limit_in_bytes", std::to_string(200 * kMiB));
  file(job + "/memory.usage_in_bytes", std::to_string(60 * kMiB));
  file(job + "/memory.stat", "inactive_file 1\ntotal_inactive_file " + std::to_string(20 * kMiB));
  file(job + "/step_0/memory.limit_in_bytes", "9223372036854771712");
  file(job + "/step_0/memory.usage_in_bytes", std::to_string(60 * kMiB));
  expect_memory(160, "limit of the cgroup /slurm/job_7");

  EXPECT_FALSE(cpu_quota(root()));
  const std::string cpu = "sys/fs/cgroup/cpu,cpuacct/slurm";
  file(cpu + "/job_7/cpu.cfs_quota_us", "-1");
  file(cpu + "/job_7/cpu.cfs_period_us", "100000");
  EXPECT_FALSE(cpu_quota(root()));
  file(cpu + "/cpu.cfs_quota_us", "250000");
  file(cpu + "/cpu.cfs_period_us", "100000");
  expect_quota(3, "/slurm");
}

// /proc/self/cgroup has the host's path, and the mount shows only the container's part.
TEST_F(SystemLimits, AContainerWithTheHostsPathIsFoundBelowItsMount) {
  file("proc/self/mountinfo",
       "35 31 0:32 /docker/a\\134b /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  const auto limit = [&](const std::string& directory, int mib) {
    file(directory + "/memory.limit_in_bytes", std::to_string(mib * kMiB));
    file(directory + "/memory.usage_in_bytes", "0");
  };
  limit("sys/fs/cgroup/memory", 100);
  group_is("5:memory:/docker/a\\b\n");
  expect_memory(100, "limit of the cgroup /docker/a\\b");
  limit("sys/fs/cgroup/memory/inner", 50);
  group_is("5:memory:/docker/a\\b/inner\n");
  expect_memory(50, "limit of the cgroup /docker/a\\b/inner");
  group_is("5:memory:/docker/another\n");  // not visible in the mount
  expect_memory(100, "limit of the cgroup /");
}

// None of the mounts in /proc is visible, because another one was mounted over them.
TEST_F(SystemLimits, HiddenMountsAreFoundAtTheUsualPlace) {
  file("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  group_is("0::/job\n");
  memory_of("sys/fs/cgroup/job", 70, 0);
  expect_memory(70, "limit of the cgroup /job");
}

TEST_F(SystemLimits, LimitsOfTheProcessAreNotShared) {
  const auto line = [](const std::string& name, const std::string& soft) {
    return name + std::string(26 - name.size(), ' ') + soft + "   unlimited   bytes\n";
  };
  file("proc/self/limits", line("Max data size", "unlimited") + line("Max stack size", "8388608") +
                               line("Max address space", std::to_string(600 * kMiB)));
  file("proc/self/status", "VmPeak: 300000 kB\nVmSize:\t  102400 kB\nVmData:\t   51200 kB\n");
  expect_memory(500, "limit of the address space, ulimit -v");
  EXPECT_EQ(available_memory(4, 0, root()).bytes, 500 * kMiB);
  EXPECT_EQ(available_memory(1, 5, root()).bytes, 460 * kMiB);
  file("proc/self/limits", line("Max data size", std::to_string(250 * kMiB)));
  expect_memory(200, "limit of the data segment, ulimit -d");
}

TEST_F(SystemLimits, CpuQuotaIsRoundedAndAtLeastOne) {
  file("proc/self/mountinfo", kVersion2);
  group_is("0::/a/b\n");
  const std::string top = "sys/fs/cgroup/a";
  file(top + "/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(cpu_quota(root()));
  for (const auto& [quota, cores] :
       {std::pair{"20000", 1}, {"149000", 1}, {"150000", 2}, {"240000", 2}, {"400000", 4}}) {
    file(top + "/b/cpu.max", std::string(quota) + " 100000\n");
    expect_quota(cores, "/a/b");
  }
  file(top + "/cpu.max", "150000 50000\n");
  expect_quota(3, "/a");
}

TEST_F(SystemLimits, TheLimitThatRefusesAThreadIsNamed) {
  EXPECT_THAT(refused_thread_text(root()), HasSubstr("kernel.threads-max"));
  file("proc/self/limits", "Max processes             7        9        processes\n");
  EXPECT_THAT(
      refused_thread_text(root()),
      HasSubstr("this user has a limit of 7 for processes and threads (ulimit -u): raise the "
                "limit, or give fewer --devices"));
  file("proc/self/mountinfo", kVersion2);
  group_is("0::/a/b\n");
  file("sys/fs/cgroup/a/pids.max", "20");
  file("sys/fs/cgroup/a/pids.current", "19");
  EXPECT_THAT(refused_thread_text(root()), HasSubstr("this user has a limit of 7"));
  file("sys/fs/cgroup/a/pids.current", "20");
  EXPECT_THAT(refused_thread_text(root()),
              HasSubstr("the cgroup /a has a limit of 20 for processes and threads (pids.max)"));
  std::filesystem::remove(root() / "proc/self/cgroup");
  file("proc/self/limits",
       "Max processes      7    7   processes\nMax stack size    8388608   8\n"
       "Max address space   104857600    unlimited    bytes\n");
  file("proc/self/status", "VmSize: 90000 kB\n");
  EXPECT_THAT(refused_thread_text(root()), HasSubstr("this user has a limit of 7"));
  file("proc/self/status", "VmSize: 95000 kB\n");
  EXPECT_THAT(refused_thread_text(root()),
              HasSubstr("does not fit into the limit of the address space, ulimit -v (104857600 "
                        "bytes)"));
}

}  // namespace
}  // namespace muo
