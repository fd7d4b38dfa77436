#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/attention_choice.h"
#include "runtime/plugin.h"

namespace muo::trainer {

// Profile of a GPU that need not be present: its maker's figures, and what a run's decisions depend
// on.
struct DescribedGpu {
  std::string_view name;    // h100
  std::string_view device;  // CUDA's name for it
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
// Throws InputError, with the known names, if there is none.
const DescribedGpu& described_gpu(std::string_view name);
// Name of the GPU profile that a usual spelling means ("RTX 4090", "4090", "H100-SXM5 80GB"); other
// text is returned unchanged.
std::string_view described_gpu_name(std::string_view text);

// A backend of any number of such GPUs, with peer access, on which runs can be resolved and their
// memory planned, but not executed: make_device throws Error. `memory`: bytes of each, in this
// process from now on; 0: gpu.memory.
const BackendPlugin& described_backend(const DescribedGpu& gpu, std::int64_t memory = 0);

// Attention kernels of such a GPU, by cuDNN's answers for a Hopper GPU.
AttentionChoice choose_described_attention(const AttentionSize& size, AttentionDirection direction,
                                           bool is_hopper);

// Makes attention choose by choose_described_attention() while it lives.
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

}  // namespace muo::trainer
