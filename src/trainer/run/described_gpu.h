#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/attention_choice.h"
#include "runtime/plugin.h"

namespace muo::trainer {

// Profile of a GPU, which need not be present: the maker's figures and everything else on which a
// run's decisions depend.
struct DescribedGpu {
  std::string_view name;    // h100
  std::string_view device;  // CUDA's name for the GPU
  int multiprocessors = 0;
  double flops = 0;       // per second: dense, bf16 with fp32 sums
  double fp32_flops = 0;  // per second: without tensor cores
  double clock = 0;  // Hz, for which `flops` are stated: flops / multiprocessors / FLOP a clock
  double memory_rate = 0;   // bytes per second
  double power = 0;         // watts: its default limit
  std::int64_t memory = 0;  // bytes
  bool is_hopper = false;   // kernels/fused_product.h, kernels/attention_choice.h

  [[nodiscard]] std::string why_not_fused() const { return is_hopper ? "" : "this GPU has none"; }
};

std::span<const DescribedGpu> described_gpus();
std::string described_gpu_names();  // "h100, h200"
// Throws InputError, listing the known names, if there is no such profile.
const DescribedGpu& described_gpu(std::string_view name);
// The name of the GPU profile that a common spelling means ("RTX 4090", "4090", "H100-SXM5 80GB");
// returns other text unchanged.
std::string_view described_gpu_name(std::string_view text);

// A backend of any number of such GPUs, with peer access. Runs can be resolved and their memory
// planned on it, but not executed: make_device throws Error. `memory` is the number of bytes of
// each GPU, in this process from now on; 0: gpu.memory.
const BackendPlugin& described_backend(const DescribedGpu& gpu, std::int64_t memory = 0);

// Attention kernels of such a GPU, according to cuDNN's answers for a Hopper GPU.
AttentionChoice choose_described_attention(const AttentionSize& size, AttentionDirection direction,
                                           bool is_hopper);

// While it exists, attention kernels are chosen by choose_described_attention().
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
