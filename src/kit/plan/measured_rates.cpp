#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "base/median.h"
#include "base/strict_json.h"
#include "kernels/gemm.h"
#include "kit/plan/roofline.h"
#include "trainer/options/option_row.h"
#include "trainer/run/described_gpu.h"

namespace muo::kit {
namespace {

// The product of a kernel named "gemm/weight_gradient/768x3072" with this many FLOPs; m is 0 for
// other names.
struct NamedProduct {
  std::string shape;
  Product product;
};
NamedProduct product_of(const std::string& kernel, double flops) {
  std::array<char, 32> what{};
  std::int64_t in = 0, out = 0;
  if (std::sscanf(kernel.c_str(), "gemm/%31[a-z_]/%ldx%ld", what.data(), &in, &out) != 3) return {};
  const auto rows = std::llround(flops / (2.0 * static_cast<double>(in * out)));
  const std::string_view name = what.data();
  if (in <= 0 || out <= 0 || rows <= 0 ||
      (name != "forward" && name != "input_gradient" && name != "weight_gradient"))
    return {};
  Product p{.m = rows, .k = in, .n = out};
  if (name == "input_gradient") p = {.m = rows, .k = out, .n = in};
  if (name == "weight_gradient") p = {.m = out, .k = rows, .n = in};
  return {product_shape(name == "weight_gradient", name == "forward", p.m, p.k, p.n, 1), p};
}

// Returns the field's number. Throws std::out_of_range unless it is in (0, 1e15].
double positive(const nlohmann::json& row, const char* name) {
  const double value = row.at(name).get<double>();
  if (!(value > 0) || value > 1e15)
    throw std::out_of_range(
        fmt::format("{} is {}, not a number above 0", name, row.at(name).dump()));
  return value;
}

// Bytes of a product's operands and result: bf16, but gradients of weights are added to fp32.
double product_bytes(const NamedProduct& named) {
  const auto& [m, k, n, batch] = named.product;
  const double result = named.shape.starts_with("T") ? 8 : 2;
  return 2.0 * static_cast<double>((m + n) * k) + result * static_cast<double>(m * n);
}

struct Measured {
  std::vector<double> shares;        // by product: its share of the predicted rate
  std::vector<KernelPower> kernels;  // products and memory-bound kernels
};

// Appends the power of a kernel that takes `seconds`, if the row has it.
void add_power(Measured& measured, const nlohmann::json& row, double seconds, double flops,
               double bytes) {
  if (!row.contains("clock_mhz") || !(row.contains("watts") || row.contains("joules"))) return;
  measured.kernels.push_back(
      {.watts = row.contains("watts") ? positive(row, "watts") : positive(row, "joules") / seconds,
       .clock = 1e6 * positive(row, "clock_mhz"),
       .flops = flops,
       .bytes = bytes});
}

// Replaces a rate by a measured one.
void apply_row(GpuRates& rates, const nlohmann::json& row, Measured& measured) {
  const std::string kernel = row.at("kernel").get<std::string>();
  const double seconds = 1e-6 * positive(row, "us");
  if (row.contains("gb_per_s")) {
    const double bytes = 1e9 * positive(row, "gb_per_s");
    rates.measured_memory[kernel] = bytes;
    add_power(measured, row, seconds, 0, bytes);
    return;
  }
  if (!row.contains("tflops")) return;
  const double flops = 1e12 * positive(row, "tflops");
  // Times are multiplied by this to convert them from the row's clock to rate_clock.
  const double clock =
      row.contains("clock_mhz") ? 1e6 * positive(row, "clock_mhz") / rates.rate_clock : 1;
  // FLOPs with a document mask depend on the documents, and a step lists rotary as its own
  // operation.
  if (kernel.find("/documents") != std::string::npos || kernel.ends_with("/rotary")) return;
  std::int64_t window = 0;
  if (std::sscanf(kernel.c_str(), "attention/window%ld", &window) == 1)
    rates.measured_attention[fmt::format("attention w{}", window)] = flops / clock;
  if (std::sscanf(kernel.c_str(), "attention_backward/window%ld", &window) == 1)
    rates.measured_attention[fmt::format("attention_backward w{}", window)] = flops / clock;
  if (const NamedProduct named = product_of(kernel, flops * seconds); named.product.m > 0) {
    rates.measured_products[named.shape] = clock * seconds;
    measured.shares.push_back(predict_product(named.product, rates, 1).seconds / (clock * seconds));
    add_power(measured, row, seconds, flops, product_bytes(named) / seconds);
  }
}

}  // namespace

void apply_measured(GpuRates& rates, const std::string& file) {
  std::ifstream in(file);
  if (!in) throw trainer::input_error("--measured {}: cannot be read", file);
  Measured measured;
  int number = 0, found = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const nlohmann::json row = try_strict_json(line);
    if (!row.is_object())
      throw trainer::input_error(
          "--measured {}:{}: not a JSON object: give the kernels.jsonl of a GPU check", file,
          number);
    try {
      if (row.contains("device")) {
        const std::string device = row.at("device").get<std::string>();
        const std::string_view described = trainer::described_gpu(rates.gpu).device;
        if (device.find(described) == std::string::npos)
          throw trainer::input_error(
              "--measured {}: is from {}, but --roofline {} is {}: give the same GPU", file, device,
              rates.gpu, described);
      }
      if (row.contains("copy_gb_per_s")) rates.memory_rate = 1e9 * positive(row, "copy_gb_per_s");
      if (!row.contains("us") || row.value("dtype", "") != "bf16") continue;
      apply_row(rates, row, measured);
      ++found;
    } catch (const std::out_of_range& error) {
      throw trainer::input_error("--measured {}:{}: {}", file, number, error.what());
    } catch (const nlohmann::json::exception&) {
      throw trainer::input_error("--measured {}:{}: not a line of cuda_kernels_bench --json", file,
                                 number);
    }
  }
  if (found == 0)
    throw trainer::input_error(
        "--measured {}: has no time of a bf16 kernel: give the kernels.jsonl of a GPU check", file);
  if (!measured.shares.empty())
    rates.product_share = rates.measured_share = median(measured.shares);
  fit_power(rates, measured.kernels);
}

}  // namespace muo::kit
