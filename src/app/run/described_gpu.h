#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/attention_choice.h"
#include "runtime/plugin.h"

namespace muo::app {

// A GPU that need not be here: what its maker states, and what a run's decisions need of it.
struct DescribedGpu {
  std::string_view name;    // h100
  std::string_view device;  // as CUDA calls it
  int multiprocessors = 0;
  double flops = 0;         // dense, bf16 with fp32 sums, per second
  double fp32_flops = 0;    // without tensor cores, per second
  double memory_rate = 0;   // bytes per second
  std::int64_t memory = 0;  // bytes
  bool is_hopper = false;   // kernels/fused_product.h, kernels/attention_choice.h

  [[nodiscard]] std::string why_not_fused() const { return is_hopper ? "" : "this GPU has none"; }
};

std::span<const DescribedGpu> described_gpus();
std::string described_gpu_names();  // "h100, h200"
// Throws InputError, which names the others.
const DescribedGpu& described_gpu(std::string_view name);
// The name of the described GPU that people call so ("RTX 4090", "4090", "H100-SXM5 80GB"); other
// text as it is.
std::string_view described_gpu_name(std::string_view text);

// Such GPUs as devices of a run, of which every decision can be made, and memory planned: as many
// as are asked for, each with access to the others' memory. Nothing runs on them: making a device
// is an Error. `memory`: bytes that each has, in this process from now on; 0: gpu.memory.
const BackendPlugin& described_backend(const DescribedGpu& gpu, std::int64_t memory = 0);

// How such a GPU computes attention, by cuDNN's answers of a Hopper GPU.
AttentionChoice choose_described_attention(const AttentionSize& size, AttentionDirection direction,
                                           bool is_hopper);

// The last, as long as this lives.
class DescribedAttention {
 public:
  explicit DescribedAttention(const DescribedGpu& gpu)
      : before_(register_attention_backend({gpu.is_hopper ? &choose<true> : &choose<false>})) {}
  ~DescribedAttention() { static_cast<void>(register_attention_backend(before_)); }
  DescribedAttention(const DescribedAttention&) = delete;
  DescribedAttention& operator=(const DescribedAttention&) = delete;

 private:
  template <bool kHopper>
  static AttentionChoice choose(const AttentionSize& size, AttentionDirection direction) {
    return choose_described_attention(size, direction, kHopper);
  }

  AttentionBackend before_;
};

}  // namespace muo::app
