// The time of every CUDA kernel, and its share of this GPU's peak: of the bandwidth of a copy if
// the kernel is bound by memory, of the rate of a large bf16 product if it is bound by arithmetic.
// Both peaks are measured in the same run.
//   cuda_kernels_bench [--json FILE] [--filter TEXT[,TEXT...]]        -TEXT: excludes names with
//   TEXT cuda_kernels_bench --small [--backend simt]    every kernel once at odd sizes, for memory
//                                                  checkers; no times
//   cuda_kernels_bench --once                      the same at full sizes, for profilers
//   --dtype bf16|fp32; --rows N instead of 32; --gemm-table FILE: products as `muograph train
//   --gemm-table` computes them
//   --energy SECONDS: replays each case for that long; its time is the mean of these runs, and its
//   energy per run, power and clock are added
// Each case is a line of standard output, and of FILE (JSON), written before the next case begins.
// The line of a failed case contains its error. The exit code is then 4, at the end, or 3, at once,
// if the device is lost; a new process continues with --from CASE. With --case-seconds S, a case
// that takes longer ends the process (SIGALRM).
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/model_cases.h"
#include "bench/optimizer_cases.h"
#include "bench/product_cases.h"
#include "runtime/plugin.h"
#include "runtime/power_meter.h"

namespace muo::bench {
namespace {

struct Options {
  bool small = false;
  bool once = false;
  unsigned from = 0;
  unsigned rows = 0;          // of the cases of the model; 0: those of the sizes
  unsigned case_seconds = 0;  // 0: no limit
  double energy = 0;          // seconds per case; 0: not measured
  std::string backend = "cuda";
  std::string json;
  std::string filter;
  std::string dtype;       // empty: all
  std::string gemm_table;  // empty: the library's first proposals
};

Options parse(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) throw InputError(concat(option, " needs a value"));
      return argv[i];
    };
    const auto number = [&](auto parsed) {
      const std::string text = value();
      const char* end = text.data() + text.size();
      if (std::from_chars(text.data(), end, parsed).ptr != end || text.empty())
        throw InputError(concat(option, ": expected a number, got '", text, "'"));
      return parsed;
    };
    if (option == "--small")
      out.small = true;
    else if (option == "--once")
      out.once = true;
    else if (option == "--from")
      out.from = number(0U);
    else if (option == "--rows")
      out.rows = number(0U);
    else if (option == "--case-seconds")
      out.case_seconds = number(0U);
    else if (option == "--energy")
      out.energy = number(0.0);
    else if (option == "--backend")
      out.backend = value();
    else if (option == "--json")
      out.json = value();
    else if (option == "--filter")
      out.filter = value();
    else if (option == "--dtype")
      out.dtype = value();
    else if (option == "--gemm-table")
      out.gemm_table = value();
    else
      throw InputError(concat("unknown option '", option,
                              "'; expected --small, --once, --backend, --json, --filter, --dtype, "
                              "--gemm-table, --rows, --energy, --from, --case-seconds"));
  }
  return out;
}

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A graph of several runs, which takes some milliseconds.
class Runs {
 public:
  Runs(Stream& stream, const std::function<void(Stream&)>& run) : stream_(stream) {
    run(stream);  // makes plans before the capture
    stream.synchronize();
    graph_ = stream.capture([&] { run(stream); });
    seconds();
    const int count = std::clamp(static_cast<int>(0.01 / std::max(seconds(), 1e-6)), 2, 400);
    graph_ = stream.capture([&] {
      for (int i = 0; i < count; ++i)
        run(stream);
    });
    count_ = count;
  }

  // Seconds of one run, from one launch of the graph.
  double seconds() {
    const auto begin = Clock::now();
    stream_.launch(*graph_);
    stream_.synchronize();
    return since(begin) / count_;
  }

 private:
  Stream& stream_;
  std::unique_ptr<Graph> graph_;
  int count_ = 1;  // of the graph
};

double median_seconds(Runs& runs) {
  std::array<double, 7> seconds{};
  for (double& one : seconds)
    one = runs.seconds();
  std::ranges::nth_element(seconds, seconds.begin() + 3);
  return seconds[3];
}
double seconds_of(Stream& stream, const std::function<void(Stream&)>& run) {
  Runs runs(stream, run);
  return median_seconds(runs);
}

// Upper bounds: bytes per second of a copy, read and written; FLOP/s of a bf16 product.
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

using Json = nlohmann::json;

// The mean time of a run in `at_least` seconds of replays, and what the GPU used meanwhile.
struct Sustained {
  double seconds = 0;
  PowerUse use;
};
Sustained sustain(Runs& runs, double at_least, PowerMeter& meter) {
  const auto begin = Clock::now();
  int launches = 0;
  double busy = 0;
  meter.take();
  for (; since(begin) < at_least; ++launches) {
    busy += runs.seconds();
    meter.sample();
  }
  const std::optional<PowerUse> use = meter.take();
  if (!use) throw InputError("--energy: the driver reports no energy of this GPU");
  return {busy / launches, *use};
}

// Adds the energy of a run to `row`, and returns its text.
std::string add_energy(const Sustained& sustained, const Case& work, Json& row) {
  const double watts = sustained.use.watts(), joules = watts * sustained.seconds;
  row["joules"] = joules;
  row["watts"] = watts;
  row["clock_mhz"] = sustained.use.clock_mhz;
  std::string text = fmt::format("; {:5.0f} W {:5.0f} MHz", watts, sustained.use.clock_mhz);
  if (work.flops > 0) {
    row["picojoules_per_flop"] = 1e12 * joules / work.flops;
    text += fmt::format(" {:6.3f} pJ/FLOP", 1e12 * joules / work.flops);
  }
  return text;
}

// Adds the time of a run and its rates to `row`, and returns their text.
std::string add_time(double seconds, const Case& work, const Ceilings& ceilings, Json& row) {
  row["us"] = seconds * 1e6;
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
  return fmt::format("{:10.1f} us {}", seconds * 1e6, share);
}

void say(const std::string& text) {
  fmt::print("{}", text);
  static_cast<void>(std::fflush(stdout));
}

// --filter: accepts names that contain one of the comma-separated texts, if there are any, and
// rejects names that contain one of those after a minus.
class Filter {
 public:
  explicit Filter(std::string_view filter) {
    for (bool more = !filter.empty(); more;) {
      const std::size_t comma = filter.find(',');
      const std::string_view text = filter.substr(0, comma);
      if (text.starts_with('-'))
        without_.emplace_back(text.substr(1));
      else
        with_.push_back({std::string(text)});
      more = comma != std::string_view::npos;
      if (more) filter.remove_prefix(comma + 1);
    }
  }

  bool chooses(std::string_view name) {
    bool found = with_.empty();
    for (Text& text : with_)
      if (name.find(text.text) != std::string_view::npos) found = text.found = true;
    return found && std::ranges::none_of(without_, [&](const std::string& text) {
             return name.find(text) != std::string_view::npos;
           });
  }
  // The first text that no name has contained; empty if there is none.
  [[nodiscard]] std::string missing() const {
    const auto text = std::ranges::find(with_, false, &Text::found);
    return text == with_.end() ? std::string{} : text->text;
  }

 private:
  struct Text {
    std::string text;
    bool found = false;
  };
  std::vector<Text> with_;
  std::vector<std::string> without_;
};

class Bench {
 public:
  Bench(const Options& options, const BackendPlugin& plugin)
      : options_(options),
        filter_(options.filter),
        timed_(!options.small && !options.once),
        meter_({.plugin = &plugin}),
        device_(plugin.make_device(0, 0)),
        stream_(device_->make_stream(StreamPriority::kNormal)) {
    if (!options.json.empty())
      file_.open(options.json, options.from > 0 ? std::ios::app : std::ios::trunc);
    if (timed_) ceilings_ = measure_ceilings(*device_, *stream_);
    say(fmt::format("{}\n", plugin.describe(0)));
    Json head{{"benchmark", "cuda_kernels_bench"}, {"device", plugin.describe(0)}};
    if (timed_) {
      head["copy_gb_per_s"] = ceilings_.bandwidth * 1e-9;
      head["bf16_product_tflops"] = ceilings_.products * 1e-12;
      say(fmt::format("copy {:.0f} GB/s, bf16 product {:.0f} TFLOP/s\n", ceilings_.bandwidth * 1e-9,
                      ceilings_.products * 1e-12));
    }
    write(head);
  }

  // Returns true if the case succeeded. Throws Error if the device is lost.
  bool run(unsigned index, const Typed& typed) {
    Json row{{"case", index}, {"dtype", name_of(typed.dtype)}};
    alarm(options_.case_seconds);
    try {
      Tensors tensors(*device_, *stream_);
      Sizes sizes = options_.small ? kSmall : kFull;
      if (options_.rows > 0) sizes.b = options_.rows;
      const Case work = typed.make(tensors, sizes);
      if (!filter_.chooses(work.name)) return true;
      row["kernel"] = work.name;
      say(fmt::format("[{}] {:44} {:5}", index, work.name, name_of(typed.dtype)));
      std::string text = "ran";
      if (timed_ || options_.energy > 0) {
        Runs runs(*stream_, work.run);
        std::optional<Sustained> sustained;
        if (options_.energy > 0) sustained = sustain(runs, options_.energy, meter_);
        if (timed_)
          text =
              add_time(sustained ? sustained->seconds : median_seconds(runs), work, ceilings_, row);
        if (sustained) text += add_energy(*sustained, work, row);
      } else {
        work.run(*stream_);
        stream_->synchronize();
      }
      say(fmt::format(" {}\n", text));
    } catch (const std::exception& error) {
      row["error"] = error.what();
      say(fmt::format(" FAILED: {}\n", error.what()));
    }
    write(row);
    if (!row.contains("error")) return true;
    stream_->synchronize();
    return false;
  }

  [[nodiscard]] const Filter& filter() const { return filter_; }

 private:
  void write(const Json& row) {
    if (options_.json.empty()) return;
    file_ << row.dump() << "\n";
    if (!file_.flush()) throw Error(concat("cannot write ", options_.json));
  }

  const Options& options_;
  Filter filter_;
  bool timed_;
  PowerMeter meter_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Ceilings ceilings_{};
  std::ofstream file_;
};

int run(const Options& options) {
  const LoadedPlugin loaded =
      options.backend == "cuda" ? load_cuda() : load_plugin("muograph_" + options.backend);
  if (loaded.plugin == nullptr) throw Error(loaded.missing);
  if (!options.gemm_table.empty()) use_gemm_table({.path = options.gemm_table});
  Bench bench(options, *loaded.plugin);
  const std::vector<Typed> cases = all_cases();
  int failed = 0;
  for (unsigned i = options.from; i < cases.size(); ++i)
    if (options.dtype.empty() || options.dtype == name_of(cases[i].dtype))
      if (!bench.run(i, cases[i])) ++failed;
  if (!options.gemm_table.empty()) save_gemm_table(options.gemm_table);
  if (const std::string missing = bench.filter().missing(); options.from == 0 && !missing.empty())
    throw InputError(concat("--filter: no case's name contains '", missing, "'"));
  if (failed > 0) fmt::print(stderr, "cuda_kernels_bench: {} cases failed\n", failed);
  return failed > 0 ? 4 : 0;
}

}  // namespace
}  // namespace muo::bench

int main(int argc, char** argv) {
  try {
    return muo::bench::run(muo::bench::parse(argc, argv));
  } catch (const muo::InputError& error) {
    static_cast<void>(std::fprintf(stderr, "cuda_kernels_bench: %s\n", error.what()));
    return 2;
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "cuda_kernels_bench: %s\n", error.what()));
    return 3;
  }
}
