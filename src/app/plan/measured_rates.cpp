#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "app/options/option_row.h"
#include "app/plan/roofline.h"
#include "app/run/described_gpu.h"
#include "base/median.h"
#include "base/strict_json.h"
#include "kernels/gemm.h"

namespace muo::app {
namespace {

// Of "gemm/weight_gradient/768x3072" at this many FLOPs; m = 0: of another name.
struct Named {
  std::string shape;
  Product product;
};
Named product_of(const std::string& kernel, double flops) {
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

// Throws std::out_of_range.
double positive(const nlohmann::json& row, const char* name) {
  const double value = row.at(name).get<double>();
  if (!(value > 0) || value > 1e15)
    throw std::out_of_range(
        fmt::format("{} is {}, not a number above 0", name, row.at(name).dump()));
  return value;
}

void take(GpuRates& rates, const nlohmann::json& row, std::vector<double>& shares) {
  const std::string kernel = row.at("kernel").get<std::string>();
  const double seconds = 1e-6 * positive(row, "us");
  if (row.contains("gb_per_s")) {
    rates.measured_memory[kernel] = 1e9 * positive(row, "gb_per_s");
    return;
  }
  if (!row.contains("tflops")) return;
  const double rate = 1e12 * positive(row, "tflops");
  if (kernel.find("/documents") != std::string::npos) return;  // counted by their borders
  if (kernel.ends_with("/rotary")) return;  // an operation of its own in a step's list
  std::int64_t window = 0;
  if (std::sscanf(kernel.c_str(), "attention/window%ld", &window) == 1)
    rates.measured_attention[fmt::format("attention w{}", window)] = rate;
  if (std::sscanf(kernel.c_str(), "attention_backward/window%ld", &window) == 1)
    rates.measured_attention[fmt::format("attention_backward w{}", window)] = rate;
  if (const Named named = product_of(kernel, rate * seconds); named.product.m > 0) {
    rates.measured_products[named.shape] = seconds;
    shares.push_back(predict_product(named.product, rates, 1).seconds / seconds);
  }
}

}  // namespace

void take_measured(GpuRates& rates, const std::string& file) {
  std::ifstream in(file);
  if (!in) throw input_error("--measured {}: cannot be read", file);
  std::vector<double> shares;
  int number = 0, found = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const nlohmann::json row = try_strict_json(line);
    if (!row.is_object())
      throw input_error(
          "--measured {}:{}: not a JSON object: give the kernels.jsonl of a GPU check", file,
          number);
    try {
      if (row.contains("device")) {
        const std::string device = row.at("device").get<std::string>();
        const std::string_view described = described_gpu(rates.gpu).device;
        if (device.find(described) == std::string::npos)
          throw input_error("--measured {}: of {}, while --roofline {} is of {}: give the same GPU",
                            file, device, rates.gpu, described);
      }
      if (row.contains("copy_gb_per_s")) rates.memory_rate = 1e9 * positive(row, "copy_gb_per_s");
      if (!row.contains("us") || row.value("dtype", "") != "bf16") continue;
      take(rates, row, shares);
      ++found;
    } catch (const std::out_of_range& error) {
      throw input_error("--measured {}:{}: {}", file, number, error.what());
    } catch (const nlohmann::json::exception&) {
      throw input_error("--measured {}:{}: not a line of cuda_kernels_bench --json", file, number);
    }
  }
  if (found == 0)
    throw input_error(
        "--measured {}: no time of a kernel in bf16: give the kernels.jsonl of a GPU "
        "check",
        file);
  if (!shares.empty()) rates.product_share = rates.measured_share = median(shares);
}

}  // namespace muo::app
