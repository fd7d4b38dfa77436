#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/processes.h"
#include "trainer/run/device_rates.h"

namespace muo::trainer {
namespace {

TEST(GpuPeaks, AreFoundByTheNamesThatUsersSee) {
  struct Row {
    const char* name;
    double tera_flops;
  };
  for (const Row& row : {Row{"NVIDIA H100 80GB HBM3", 989},
                         Row{"NVIDIA H100 SXM5 80GB", 989},
                         Row{"NVIDIA H100 PCIe", 756},
                         Row{"NVIDIA H100 NVL", 835},
                         Row{"NVIDIA H200", 989},
                         Row{"NVIDIA H200 NVL", 836},
                         Row{"NVIDIA H800", 756},
                         Row{"NVIDIA H800 NVL", 989},
                         Row{"NVIDIA B200", 2250},
                         Row{"NVIDIA GB200", 2500},
                         Row{"NVIDIA B100", 1800},
                         Row{"NVIDIA A100-SXM4-40GB", 312},
                         Row{"NVIDIA A100 80GB PCIe", 312},
                         Row{"A100-PCIE-40GB", 312},
                         Row{"NVIDIA A800-SXM4-80GB", 312},
                         Row{"NVIDIA A40", 149.7},
                         Row{"NVIDIA A30", 165},
                         Row{"NVIDIA L40S", 362},
                         Row{"NVIDIA L4", 121},
                         Row{"NVIDIA GeForce RTX 4090", 165.2},
                         Row{"NVIDIA GeForce RTX 3090", 71},
                         Row{"NVIDIA GeForce RTX 5090", 209.5}}) {
    const auto peak = gpu_peak_flops(row.name);
    ASSERT_TRUE(peak) << row.name;
    EXPECT_DOUBLE_EQ(*peak, row.tera_flops * 1e12) << row.name;
  }
}

TEST(GpuPeaks, DoNotConfuseVariants) {
  for (const char* name :
       {"", "NVIDIA", "NVIDIA L40", "NVIDIA GH200 480GB", "NVIDIA H20", "NVIDIA RTX A4000",
        "NVIDIA A10", "NVIDIA A30X", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 5090 D", "Tesla V100-SXM2-16GB",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "AMD Instinct MI300X", "something 4090"})
    EXPECT_FALSE(gpu_peak_flops(name)) << name;
}

TEST(GpuPeaks, ARunsPeakIsTheSumOverItsGpus) {
  static const BackendPlugin plugin{.name = [](int index) {
    return std::string(index < 2 ? "NVIDIA H100 80GB HBM3" : "NVIDIA A100-SXM4-40GB");
  }};
  RunConfig run;
  run.group = {.world = 6, .plugin = &plugin, .ranks_per_device = 2};
  const DevicePeak peak = peak_of(run);
  EXPECT_DOUBLE_EQ(peak.flops, (2 * 989 + 312) * 1e12);
  EXPECT_EQ(peak.text, "2290 TFLOP/s in bf16 by their maker, all GPUs together");
}

// Measured rates vary, but by less than a factor of 8.
TEST(HostPeak, IsThatOfAllProcesses) {
  const auto failures = test::as_processes({1, 63}, [](ProcessGroup& processes) {
    if (!processes.is_first()) return;
    RunConfig run;
    run.group = {.world = 64, .processes = &processes};
    const double alone = measure_gemm_rate(run.group.alone(), run.model.dtype);
    const double peak = peak_of(run).flops;
    EXPECT_GT(peak, 8 * alone);
    EXPECT_LT(peak, 8 * 64 * alone);
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

}  // namespace
}  // namespace muo::trainer
