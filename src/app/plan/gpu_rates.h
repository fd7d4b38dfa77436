#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace muo::app {

// What a GPU is thought to reach in the work of a training step: the inputs of a prediction, in
// seconds, bytes and FLOP/s. Times of products are of bf16 with fp32 sums.
struct GpuRates {
  std::string gpu;  // of described_gpus()
  double multiprocessors = 0;
  double peak_flops = 0;  // what utilisation is a share of
  // Products: a tile of results is computed by one multiprocessor, as many at a time as there are.
  double tile_flops = 0;      // of all multiprocessors, inside their tiles
  double wave_seconds = 0;    // of every wave of tiles, beside its products: prologue, epilogue
  double product_share = 0;   // of the rate of the best tiles, by the library's first proposal
  double measured_share = 0;  // likewise, by the fastest of its proposals (--tune)
  double split_bytes = 0;     // workspace: that partial sums over k may fill
  double fp32_flops = 0;      // of products of fp32
  // Attention, of the pairs of query and key that are computed.
  double library_forward = 0, library_forward_window = 0;
  double library_backward = 0, library_backward_window = 0;
  double own_forward = 0, own_forward_window = 0;
  double own_backward = 0, own_backward_window = 0;
  double warpgroup_backward = 0, warpgroup_backward_window = 0;
  double portable_attention = 0;
  double rotary_in_attention = 0;  // of rotary_norm_backward's time, where attention includes it
  // Memory.
  double memory_rate = 0;      // that a copy reaches
  double streaming_share = 0;  // of it, by kernels that read and write each element once
  double cross_entropy_share = 0;
  double grouping_seconds = 0;  // of each token, in gradients of embeddings
  // Everything.
  double node_seconds = 0;  // from the end of a kernel to the next one's start
  double link_rate = 0;     // bytes per second that a device sends in a collective
  double link_seconds = 0;  // of a collective, whatever its size
  // By operation, instead of the above, where a GPU was measured: bytes per second; FLOP/s of
  // "attention w511", a window each; seconds of a product by product_shape().
  std::map<std::string, double> measured_memory = {}, measured_attention = {},
                                measured_products = {};
};

enum class RateScale : std::uint8_t { kNone, kFlops, kMemory };

// A rate's name in files, its value for an H100, how that of another GPU follows, and where it is
// from.
struct RateRow {
  std::string_view name;
  double GpuRates::*field;
  double value;
  RateScale scale;
  std::string_view source;
};
std::span<const RateRow> rate_rows();

// Of a described GPU by name; or of a JSON file: {"gpu": "h100", "tile_flops": 8e14, ...}, which
// replaces some. Throws InputError that begins with --roofline.
GpuRates gpu_rates(const std::string& name_or_file);

}  // namespace muo::app
