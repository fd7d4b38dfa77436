#include "trainer/run/described_gpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cudnn_answers.h"
#include "trainer/options/option_row.h"
#include "trainer/run/device_rates.h"

namespace muo::trainer {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Figures from NVIDIA's data sheets and architecture papers; memory as CUDA reports it.
constexpr std::array kGpus = {
    DescribedGpu{"h100", "NVIDIA H100 80GB HBM3", 132, 989e12, 67e12, 1.83e9, 3.35e12, 700,
                 79 * kGiB, true},
    DescribedGpu{"h200", "NVIDIA H200", 132, 989e12, 67e12, 1.83e9, 4.8e12, 700, 139 * kGiB, true},
    DescribedGpu{"b200", "NVIDIA B200", 148, 2250e12, 75e12, 1.86e9, 7.7e12, 1000, 178 * kGiB},
    DescribedGpu{"a100", "NVIDIA A100-SXM4-80GB", 108, 312e12, 19.5e12, 1.41e9, 2.039e12, 400,
                 79 * kGiB},
    DescribedGpu{"rtx4090", "NVIDIA GeForce RTX 4090", 128, 165.2e12, 82.6e12, 2.52e9, 1.008e12,
                 450, 23 * kGiB + kGiB / 2},
    DescribedGpu{"rtx5090", "NVIDIA GeForce RTX 5090", 170, 209.5e12, 104.8e12, 2.41e9, 1.792e12,
                 575, 31 * kGiB + kGiB / 3},
};

constexpr int kMaxGpus = 256;
std::array<std::atomic<std::int64_t>, kGpus.size()> memory_of;

template <std::size_t kIndex>
BackendPlugin backend_of() {
  return {.missing = [] { return std::string(); },
          .device_count = [] { return kMaxGpus; },
          .name = [](int) { return std::string(kGpus[kIndex].device); },
          .describe = [](int) { return std::string(kGpus[kIndex].device) + ", described"; },
          .available_memory = [](int) { return memory_of[kIndex].load(); },
          .total_memory = [](int) { return memory_of[kIndex].load(); },
          .no_peer_access = [](int) { return std::string(); },
          .make_device = [](int, int) -> std::unique_ptr<Device> {
            throw Error(concat("the GPU profile of ", kGpus[kIndex].device, " cannot execute"));
          }};
}
template <std::size_t... kIndices>
std::array<BackendPlugin, sizeof...(kIndices)> backends_of(std::index_sequence<kIndices...>) {
  return {backend_of<kIndices>()...};
}

}  // namespace

std::span<const DescribedGpu> described_gpus() { return kGpus; }

std::string described_gpu_names() {
  std::string names;
  for (const DescribedGpu& gpu : kGpus)
    names += concat(names.empty() ? "" : ", ", gpu.name);
  return names;
}

const DescribedGpu& described_gpu(std::string_view name) {
  for (const DescribedGpu& gpu : kGpus)
    if (gpu.name == name) return gpu;
  throw input_error("no profile of GPU '{}': give one of {}", name, described_gpu_names());
}

std::string_view described_gpu_name(std::string_view text) {
  const std::vector<std::string> words = gpu_name_words(text);
  for (const DescribedGpu& gpu : kGpus) {
    std::string_view number = gpu.name;
    if (number.starts_with("rtx")) number.remove_prefix(3);
    const double gib = static_cast<double>(gpu.memory) / static_cast<double>(kGiB);
    const auto is_name = [&](const std::string& word) {
      return word == gpu.name || word == number;
    };
    const auto is_its = [&](const std::string& word) {
      constexpr std::array<std::string_view, 8> kMore = {"nvidia", "geforce", "rtx",  "gpu",
                                                         "sxm",    "sxm4",    "sxm5", "sxm6"};
      int size = 0;
      const char* const end = word.data() + word.size();
      const auto [unit, error] = std::from_chars(word.data(), end, size);
      const bool is_memory = error == std::errc() && std::string_view(unit, end) == "gb" &&
                             size >= gib && size <= 1.1 * gib;
      return is_name(word) || is_memory || word.starts_with("hbm") ||
             std::ranges::find(kMore, word) != kMore.end();
    };
    if (std::ranges::any_of(words, is_name) && std::ranges::all_of(words, is_its)) return gpu.name;
  }
  return text;
}

const BackendPlugin& described_backend(const DescribedGpu& gpu, std::int64_t memory) {
  static const std::array backends = backends_of(std::make_index_sequence<kGpus.size()>());
  for (std::size_t i = 0; i < kGpus.size(); ++i)
    if (kGpus[i].name == gpu.name) {
      memory_of[i] = memory > 0 ? memory : gpu.memory;
      return backends[i];
    }
  MUO_FAIL("no backend of ", gpu.name);
}

AttentionChoice choose_described_attention(const AttentionSize& size, AttentionDirection direction,
                                           bool is_hopper) {
  const auto library = [&] { return cudnn_answer(size, direction, size.method.deterministic); };
  return choose_attention(size, direction, library, {}, is_hopper);
}

}  // namespace muo::trainer
