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

// Replaces a rate by a measured one. For a product, appends its share of the predicted rate.
void apply_row(GpuRates& rates, const nlohmann::json& row, std::vector<double>& shares) {
  const std::string kernel = row.at("kernel").get<std::string>();
  const double seconds = 1e-6 * positive(row, "us");
  if (row.contains("gb_per_s")) {
    rates.measured_memory[kernel] = 1e9 * positive(row, "gb_per_s");
    return;
  }
  if (!row.contains("tflops")) return;
  const double rate = 1e12 * positive(row, "tflops");
  // FLOPs with a document mask depend on the documents, and a step lists rotary as its own
  // operation.
  if (kernel.find("/documents") != std::string::npos || kernel.ends_with("/rotary")) return;
  std::int64_t window = 0;
  if (std::sscanf(kernel.c_str(), "attention/window%ld", &window) == 1)
    rates.measured_attention[fmt::format("attention w{}", window)] = rate;
  if (std::sscanf(kernel.c_str(), "attention_backward/window%ld", &window) == 1)
    rates.measured_attention[fmt::format("attention_backward w{}", window)] = rate;
  if (const NamedProduct named = product_of(kernel, rate * seconds); named.product.m > 0) {
    rates.measured_products[named.shape] = seconds;
    shares.push_back(predict_product(named.product, rates, 1).seconds / seconds);
  }
}

}  // namespace

void apply_measured(GpuRates& rates, const std::string& file) {
  std::ifstream in(file);
  if (!in) throw trainer::input_error("--measured {}: cannot be read", file);
  std::vector<double> shares;
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
      apply_row(rates, row, shares);
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
  if (!shares.empty()) rates.product_share = rates.measured_share = median(shares);
}

}  // namespace muo::kit
