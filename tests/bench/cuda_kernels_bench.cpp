// Time of every CUDA kernel, and its share of what this GPU can do: of the bandwidth of a copy
// where memory bounds it, of the rate of a large bf16 product where arithmetic does, both measured
// in the same run.
//   cuda_kernels_bench [--json FILE] [--filter TEXT]
//   cuda_kernels_bench --small [--backend simt]    every kernel once at sizes that are multiples of
//                                                  nothing, for memory checkers; no times
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/model_cases.h"
#include "bench/optimizer_cases.h"
#include "bench/product_cases.h"
#include "runtime/plugin.h"

namespace muo::bench {
namespace {

struct Options {
  bool small = false;
  std::string backend = "cuda";
  std::string json;
  std::string filter;
};

Options parse(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) throw InputError(concat(option, " needs a value"));
      return argv[i];
    };
    if (option == "--small")
      out.small = true;
    else if (option == "--backend")
      out.backend = value();
    else if (option == "--json")
      out.json = value();
    else if (option == "--filter")
      out.filter = value();
    else
      throw InputError(concat("unknown option '", option,
                              "'; there are --small, --backend, --json, "
                              "--filter"));
  }
  return out;
}

// Seconds of one run: a graph of as many as take some milliseconds, the median of its launches.
double seconds_of(Stream& stream, const std::function<void(Stream&)>& run) {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&](Graph& graph) {
    const auto begin = Clock::now();
    stream.launch(graph);
    stream.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  run(stream);  // plans are built outside of captures
  stream.synchronize();
  const auto once = stream.capture([&] { run(stream); });
  timed(*once);
  const int runs = std::clamp(static_cast<int>(0.01 / std::max(timed(*once), 1e-6)), 2, 400);
  const auto many = stream.capture([&] {
    for (int i = 0; i < runs; ++i)
      run(stream);
  });
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i)
    seconds.push_back(timed(*many) / runs);
  std::ranges::nth_element(seconds, seconds.begin() + 3);
  return seconds[3];
}

// What bounds: bytes per second of a copy, read and written; FLOP/s of a bf16 product.
struct Ceilings {
  double bandwidth, products;
};

Ceilings measure_ceilings(Device& device, Stream& stream) {
  Ceilings out{};
  {
    Tensors make(device, stream);
    const Tensor from = make.zeros({std::int64_t{1} << 28}, DType::kF32),
                 to = make.zeros(from.shape, DType::kF32);
    out.bandwidth = bytes_of({from, to}) / seconds_of(stream, [&](Stream& s) { s.copy(to, from); });
  }
  Tensors make(device, stream);
  constexpr std::int64_t kExtent = 8192;
  const Tensor a = make.normal({kExtent, kExtent}, DType::kBF16),
               b = make.normal(a.shape, DType::kBF16), d = make.zeros(a.shape, DType::kBF16);
  out.products = 2.0 * double{kExtent} * double{kExtent} * double{kExtent} /
                 seconds_of(stream, [&](Stream& s) {
                   gemm(s, {.d = d, .a = a, .b = b, .transpose_b = true});
                 });
  return out;
}

struct Typed {
  DType dtype;
  MakeCase make;
};

std::vector<Typed> all_cases() {
  std::vector<Typed> out;
  const auto append = [&](DType dtype, const std::vector<MakeCase>& cases) {
    for (const MakeCase& make : cases)
      out.push_back({dtype, make});
  };
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    std::vector<MakeCase> cases;
    add_model_cases(cases, dtype);
    add_product_cases(cases, dtype);
    add_optimizer_cases(cases, dtype);
    append(dtype, cases);
  }
  std::vector<MakeCase> books;
  add_book_cases(books);
  append(DType::kF32, books);
  return out;
}

nlohmann::json measure(Stream& stream, const Case& work, DType dtype, const Ceilings& ceilings) {
  const double seconds = seconds_of(stream, work.run);
  nlohmann::json row{{"kernel", work.name}, {"dtype", name_of(dtype)}, {"us", seconds * 1e6}};
  std::string share;
  if (work.flops > 0) {
    row["tflops"] = work.flops / seconds * 1e-12;
    row["share_of_bf16_product"] = work.flops / seconds / ceilings.products;
    share = fmt::format("{:8.1f} TFLOP/s {:5.1f} % of a product", work.flops / seconds * 1e-12,
                        100 * work.flops / seconds / ceilings.products);
  } else if (work.bytes > 0) {
    row["gb_per_s"] = work.bytes / seconds * 1e-9;
    row["share_of_copy"] = work.bytes / seconds / ceilings.bandwidth;
    share = fmt::format("{:8.0f} GB/s    {:5.1f} % of a copy", work.bytes / seconds * 1e-9,
                        100 * work.bytes / seconds / ceilings.bandwidth);
  }
  fmt::print("{:44} {:5} {:10.1f} us {}\n", work.name, name_of(dtype), seconds * 1e6, share);
  return row;
}

void run(const Options& options) {
  const LoadedPlugin loaded =
      options.backend == "cuda" ? load_cuda() : load_plugin("muograph_" + options.backend);
  if (loaded.plugin == nullptr) throw Error(loaded.missing);
  const auto device = loaded.plugin->make_device(0, 0);
  const auto stream = device->make_stream(StreamPriority::kNormal);
  Ceilings ceilings{};
  nlohmann::json rows = nlohmann::json::array();
  if (!options.small) {
    ceilings = measure_ceilings(*device, *stream);
    fmt::print("{}\ncopy {:.0f} GB/s, bf16 product {:.0f} TFLOP/s\n", loaded.plugin->describe(0),
               ceilings.bandwidth * 1e-9, ceilings.products * 1e-12);
  }
  for (const Typed& typed : all_cases()) {
    Tensors tensors(*device, *stream);
    const Case work = typed.make(tensors, options.small ? kSmall : kFull);
    if (work.name.find(options.filter) == std::string::npos) continue;
    if (options.small) {
      work.run(*stream);
      stream->synchronize();
      fmt::print("{} {}: ran\n", work.name, name_of(typed.dtype));
    } else {
      rows.push_back(measure(*stream, work, typed.dtype, ceilings));
    }
    static_cast<void>(std::fflush(stdout));
  }
  if (options.json.empty()) return;
  const nlohmann::json out{{"benchmark", "cuda_kernels_bench"},
                           {"device", loaded.plugin->describe(0)},
                           {"copy_gb_per_s", ceilings.bandwidth * 1e-9},
                           {"bf16_product_tflops", ceilings.products * 1e-12},
                           {"kernels", rows}};
  std::ofstream file(options.json);
  file << out.dump(1) << "\n";
  if (!file.flush()) throw Error(concat("cannot write ", options.json));
}

}  // namespace
}  // namespace muo::bench

int main(int argc, char** argv) {
  try {
    muo::bench::run(muo::bench::parse(argc, argv));
    return 0;
  } catch (const muo::InputError& error) {
    static_cast<void>(std::fprintf(stderr, "cuda_kernels_bench: %s\n", error.what()));
    return 2;
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "cuda_kernels_bench: %s\n", error.what()));
    return 3;
  }
}
