#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace muo::kit {

// Rates assumed for a GPU, from which a step is predicted: in seconds, bytes and FLOP/s, for bf16
// products with fp32 accumulation unless stated otherwise. Those of products and attention are at
// rate_clock, to which they are proportional; those of memory do not depend on the clock.
struct GpuRates {
  std::string gpu;  // a name of described_gpus()
  double multiprocessors = 0;
  double peak_flops = 0;  // denominator of the utilization
  // Products: each multiprocessor computes one tile of the result at a time.
  double tile_flops = 0;    // all multiprocessors together, within tiles
  double wave_seconds = 0;  // overhead of each wave of tiles: prologue and epilogue
  // Share of the best tiles' rate that the library's heuristic choice reaches.
  double product_share = 0;
  double measured_share = 0;  // share that the fastest of the library's algorithms reaches (--tune)
  double split_bytes = 0;     // workspace for partial sums over k
  double fp32_flops = 0;      // products in fp32
  // Attention: FLOP/s, counting only pairs of query and key that are computed.
  double library_forward = 0, library_forward_window = 0;
  double library_backward = 0, library_backward_window = 0;
  double own_forward = 0, own_forward_window = 0;
  double own_backward = 0, own_backward_window = 0;
  double warpgroup_backward = 0, warpgroup_backward_window = 0;
  double portable_attention = 0;
  // Share of rotary_norm_backward's time if it is fused into attention.
  double rotary_in_attention = 0;
  // Memory.
  double memory_rate = 0;          // bytes/s of a copy
  double streaming_share = 0;      // share of memory_rate if each element is accessed once
  double cross_entropy_share = 0;  // share of memory_rate
  double grouping_seconds = 0;     // per token, for embedding gradients
  // Power: idle_power, joules_per_flop for each executed FLOP, joules_per_byte for each byte.
  // Executed FLOPs are those of bf16 products and attention, with 7 products instead of the 5
  // that are listed for the project's own gradients of attention on tensor cores, and the listed
  // blocks of a symmetric product (about half); masked parts of tiles are not counted.
  double rate_clock = 0;       // Hz
  double max_clock = 0;        // Hz; the power limit can enforce a lower one
  double power_limit = 0;      // watts, on average over a step
  double idle_power = 0;       // watts
  double joules_per_flop = 0;  // at rate_clock; 0: not known, and power limits nothing
  double clock_exponent = 0;   // joules per FLOP grow with this power of the clock
  double joules_per_byte = 0;
  // Launches and collectives.
  double node_seconds = 0;  // from the end of a kernel to the start of the next
  double link_rate = 0;     // bytes/s that a device sends in a collective
  double link_seconds = 0;  // latency of a collective
  // Measured rates that replace the above, by operation: bytes/s; FLOP/s of attention by window
  // ("attention w511"), and seconds of a product by product_shape(), both at rate_clock.
  std::map<std::string, double> measured_memory = {}, measured_attention = {},
                                measured_products = {};
};

// How a rate scales from an H100 to another GPU: not, or with the maker's FLOP per clock times
// max_clock, bandwidth, power or clock; kChip: the same for the same chip, else not known (0).
enum class RateScale : std::uint8_t { kNone, kFlops, kMemory, kPower, kClock, kChip };

// A rate: its name in files, its value for an H100, how it scales to another GPU, and its source.
struct RateRow {
  std::string_view name;
  double GpuRates::*field;
  double value;
  RateScale scale;
  std::string_view source;
};
std::span<const RateRow> rate_rows();

// Returns the rates of a GPU profile, by name, or of a JSON file that replaces some rates of a
// profile: {"gpu": "h100", "tile_flops": 8e14, ...}. Throws InputError with a message that begins
// with --roofline.
GpuRates gpu_rates(const std::string& name_or_file);

}  // namespace muo::kit
