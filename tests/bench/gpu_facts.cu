// Measures undocumented properties of a GPU and its driver on which our decisions depend: how many
// hardware queues replayed graphs hold; whether ranks that share a GPU can wait for each other on
// them; which calls wait for a whole GPU or block launches of other threads; and the time of a
// node, of a copy, and of two branches instead of one.
//   gpu_facts [--json FILE] [--small] [--backend simt] [--from N]
// Each fact is a line of standard output, and of FILE (JSON). Kernels that wait time out; if a fact
// nevertheless takes longer than a minute, the process ends (SIGALRM), and a new process continues
// with --from N. Exit code 4: a measurement failed, and its line states the reason.
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/median.h"
#include "bench/driver_trials.h"
#include "bench/kernel_cases.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "runtime/plugin.h"

namespace muo::bench {
namespace {

using Json = nlohmann::json;

struct Setting {
  bool small = false;
  double patience_ms = 1000;  // timeout of a kernel that waits
  const BackendPlugin* plugin = nullptr;
};
// Writes one more line.
using Report = std::function<void(const std::string& text, Json row)>;

constexpr std::size_t kForks = 40;
constexpr std::size_t kQueues = 32;  // requested by CUDA_DEVICE_MAX_CONNECTIONS

// --- The facts

// Graphs whose first kernel waits hold hardware queues. Counts those of 32 streams whose kernels do
// not finish in the meantime because they share such a queue.
void queues_held(const Setting& setting, const Report& report) {
  for (const std::size_t ranks : {1U, 2U, 4U, 8U})
    for (const std::size_t branches : {1U, 2U, 3U}) {
      const Words pinned(Words::In::kPinned, kQueues + 1);
      const Words given_up(Words::In::kGpu, 1);
      const Streams streams(ranks * branches);
      const Streams probes(kQueues);
      given_up.zero(probes[0]);
      for (std::size_t i = 0; i <= kQueues; ++i)
        pinned.set(i, 0);
      std::vector<std::unique_ptr<Replay>> graphs;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto stream = [&](std::size_t branch) { return streams[rank * branches + branch]; };
        graphs.push_back(std::make_unique<Replay>(stream(0), [&](Replay& graph) {
          wait(stream(0), pinned.at(kQueues), given_up.at(0), setting.patience_ms);
          for (std::size_t i = 0; i < kForks; ++i) {
            const cudaStream_t other = stream(branches == 1 ? 0 : 1 + i % (branches - 1));
            nothing(stream(0));
            graph.order(stream(0), other);
            nothing(other);
            graph.order(other, stream(0));
            nothing(stream(0));
          }
        }));
      }
      for (std::size_t i = 0; i < kQueues; ++i) {  // loads the kernel and chooses queues
        mark(probes[i], pinned.at(i));
        MUO_CUDA_CHECK(cudaStreamSynchronize(probes[i]));
        pinned.set(i, 0);
      }
      for (const auto& graph : graphs)
        graph->launch();
      for (std::size_t i = 0; i < kQueues; ++i)
        mark(probes[i], pinned.at(i));
      sleep_ms(setting.patience_ms / 4);
      std::size_t held = 0;
      for (std::size_t i = 0; i < kQueues; ++i)
        held += pinned.get(i) == 0 ? 1 : 0;
      pinned.set(kQueues, 1);
      streams.synchronize();
      probes.synchronize();
      report(concat(ranks, " ranks, ", branches, " branches, ", kForks, " forks: ", held, " of ",
                    kQueues, " streams wait behind them"),
             {{"ranks", ranks},
              {"branches", branches},
              {"forks", kForks},
              {"held", held},
              {"streams", kQueues}});
    }
}

// Graphs with the structure of a captured step: each bucket forks to the collectives, whose kernels
// wait for all ranks, and from there to the update; everything joins at the end.
void ranks_meet(const Setting& setting, const Report& report) {
  for (const std::size_t ranks : {2U, 4U, 8U})
    for (const std::size_t branches : {1U, 3U}) {
      const Words words(Words::In::kGpu, kForks + 1);  // the last one: given_up
      const Words copy(Words::In::kPinned, 1);
      const Streams streams(ranks * branches);
      words.zero(streams[0]);
      std::vector<std::unique_ptr<Replay>> graphs;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const cudaStream_t compute = streams[rank * branches];
        const cudaStream_t comm = streams[rank * branches + (branches == 3 ? 1 : 0)];
        const cudaStream_t update = streams[rank * branches + (branches == 3 ? 2 : 0)];
        graphs.push_back(std::make_unique<Replay>(compute, [&](Replay& graph) {
          for (std::size_t i = 0; i < kForks; ++i) {
            nothing(compute);
            graph.order(compute, comm);
            barrier(comm, words.at(i), static_cast<Word>(ranks), words.at(kForks),
                    setting.patience_ms);
            graph.order(comm, update);
            nothing(update);
          }
          graph.order(comm, compute);
          graph.order(update, compute);
        }));
      }
      const auto begin = Clock::now();
      for (const auto& graph : graphs)
        graph->launch();
      streams.synchronize();
      const double ms = ms_since(begin);
      MUO_CUDA_CHECK(cudaMemcpyAsync(copy.at(0), words.at(kForks), sizeof(Word),
                                     cudaMemcpyDeviceToHost, streams[0]));
      MUO_CUDA_CHECK(cudaStreamSynchronize(streams[0]));
      const bool hung = copy.get(0) > 0;
      report(concat(ranks, " ranks, ", branches, " branches: ",
                    hung ? std::string("a rank timed out")
                         : concat("met ", kForks, " times in ", fixed(ms, 2), " ms")),
             {{"ranks", ranks}, {"branches", branches}, {"hung", hung}, {"ms", ms}});
    }
}

// The time of a call, and of a concurrent launch by another thread, while a kernel
// waits for the host.
void calls_wait(const Setting& setting, const Report& report) {
  const Words pinned(Words::In::kPinned, 1);
  const Words given_up(Words::In::kGpu, 1);
  const Streams streams(3);
  given_up.zero(streams[0]);
  void* memory = nullptr;
  void* host = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  MUO_CUDA_CHECK(cudaStreamBeginCapture(streams[2], cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 100; ++i)
    nothing(streams[2]);
  MUO_CUDA_CHECK(cudaStreamEndCapture(streams[2], &graph));
  nothing(streams[1]);
  streams.synchronize();
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaMalloc", [&] { return cudaMalloc(&memory, 1 << 20); }},
      {"cudaFree", [&] { return cudaFree(memory); }},
      {"cudaHostAlloc", [&] { return cudaHostAlloc(&host, 1 << 20, cudaHostAllocPortable); }},
      {"cudaFreeHost", [&] { return cudaFreeHost(host); }},
      {"cudaStreamCreate",
       [&] { return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); }},
      {"cudaStreamDestroy", [&] { return cudaStreamDestroy(stream); }},
      {"cudaGraphInstantiate", [&] { return cudaGraphInstantiate(&executable, graph, 0); }},
      {"cudaGraphExecDestroy", [&] { return cudaGraphExecDestroy(executable); }},
  };
  const double held_ms = setting.patience_ms / 3;
  for (const auto& [name, call] : calls) {
    pinned.set(0, 0);
    wait(streams[0], pinned.at(0), given_up.at(0), setting.patience_ms);
    sleep_ms(held_ms / 10);  // until the call is running
    double launch_ms = 0;
    std::thread other([&] {
      sleep_ms(held_ms / 5);
      const auto begin = Clock::now();
      nothing(streams[1]);
      launch_ms = ms_since(begin);
    });
    std::thread release([&] {
      sleep_ms(held_ms);
      pinned.set(0, 1);
    });
    const auto begin = Clock::now();
    const cudaError_t error = call();
    const double ms = ms_since(begin);
    other.join();
    release.join();
    MUO_CUDA_CHECK(error, "in ", name);
    streams.synchronize();
    report(concat(name, ": ", fixed(ms, 2), " ms while a kernel waits ", fixed(held_ms, 0),
                  " ms; another thread's launch beside it ", fixed(launch_ms, 2), " ms"),
           {{"call", name},
            {"ms", ms},
            {"kernel_ms", held_ms},
            {"waits", ms > held_ms / 2},
            {"launch_ms", launch_ms},
            {"launch_waits", launch_ms > held_ms / 3}});
  }
  MUO_CUDA_CHECK(cudaGraphDestroy(graph));
}

// After a kernel that waits: how many more launches a stream accepts before a launch blocks, and
// whether launches of other threads block then, too.
void launches_behind(const Setting& setting, const Report& report) {
  constexpr int kLaunches = 2000;
  const Words pinned(Words::In::kPinned, 2);
  const Words given_up(Words::In::kGpu, 1);
  const Streams streams(2);
  given_up.zero(streams[0]);
  pinned.set(0, 0);
  mark(streams[1], pinned.at(1));
  streams.synchronize();
  pinned.set(1, 0);
  const double held_ms = setting.patience_ms / 2;
  wait(streams[0], pinned.at(0), given_up.at(0), setting.patience_ms);
  int waited_at = kLaunches;
  std::thread behind([&] {
    for (int i = 0; i < kLaunches; ++i) {
      const auto begin = Clock::now();
      nothing(streams[0]);
      if (ms_since(begin) > held_ms / 4) waited_at = std::min(waited_at, i);
    }
  });
  sleep_ms(held_ms / 2);
  std::thread release([&] {
    sleep_ms(held_ms / 2);
    pinned.set(0, 1);
  });
  const auto begin = Clock::now();
  mark(streams[1], pinned.at(1));
  const double launch_ms = ms_since(begin);
  sleep_ms(held_ms / 8);
  const bool ran = pinned.get(1) == 1 && pinned.get(0) == 0;
  behind.join();
  release.join();
  streams.synchronize();
  report(concat("a stream takes ", waited_at, " of ", kLaunches,
                " launches behind a kernel that waits; another thread's launch takes ",
                fixed(launch_ms, 2), " ms and ", ran ? "runs" : "does not run", " meanwhile"),
         {{"launches", waited_at},
          {"of", kLaunches},
          {"other_launch_ms", launch_ms},
          {"other_ran", ran}});
}

// The median of nine runs.
double median_ms(const std::function<void()>& run) {
  std::vector<double> ms(9);
  run();
  for (double& one : ms) {
    const auto begin = Clock::now();
    run();
    one = ms_since(begin);
  }
  return median(std::move(ms));
}

void gaps(const Setting& setting, const Report& report) {
  const int nodes = setting.small ? 50 : 1000;
  const Streams streams(3);
  const auto replayed = [&](std::size_t branches) {
    const Replay graph(streams[0], [&](Replay& own) {
      for (int i = 0; i < nodes; ++i) {
        const cudaStream_t to = streams[static_cast<std::size_t>(i) % branches];
        if (i > 0) own.order(streams[static_cast<std::size_t>(i - 1) % branches], to);
        nothing(to);
      }
      for (std::size_t i = 1; i < branches; ++i)
        own.order(streams[i], streams[0]);
    });
    return median_ms([&] {
      graph.launch();
      streams.synchronize();
    });
  };
  const double eager = median_ms([&] {
    for (int i = 0; i < nodes; ++i)
      nothing(streams[0]);
    streams.synchronize();
  });
  const double chain = replayed(1);
  const double crossing = replayed(3);
  report(concat("us for one of ", nodes, " empty kernels, one after another: ",
                fixed(1e3 * chain / nodes, 2), " replayed, ", fixed(1e3 * crossing / nodes, 2),
                " replayed over three branches, ", fixed(1e3 * eager / nodes, 2), " launched"),
         {{"nodes", nodes},
          {"replay_us", 1e3 * chain / nodes},
          {"three_branches_us", 1e3 * crossing / nodes},
          {"eager_us", 1e3 * eager / nodes}});
}

void copies(const Setting& setting, const Report& report) {
  const std::size_t largest = std::size_t{1} << (setting.small ? 18 : 30);
  const Words from(Words::In::kGpu, largest / sizeof(Word));
  const Words to(Words::In::kGpu, largest / sizeof(Word));
  const Streams streams(1);
  from.zero(streams[0]);
  for (std::size_t bytes = largest >> 12; bytes <= largest; bytes <<= 2) {
    const int repeats = static_cast<int>(std::clamp<std::size_t>(largest / bytes, 4, 100));
    const Replay graph(streams[0], [&](Replay&) {
      for (int i = 0; i < repeats; ++i)
        MUO_CUDA_CHECK(
            cudaMemcpyAsync(to.at(0), from.at(0), bytes, cudaMemcpyDeviceToDevice, streams[0]));
    });
    const double ms = median_ms([&] {
                        graph.launch();
                        streams.synchronize();
                      }) /
                      repeats;
    const double gb_per_s = 2e-6 * static_cast<double>(bytes) / ms;
    report(
        concat("copies of ", bytes >> 10, " KiB: ", fixed(gb_per_s, 0), " GB/s read and written"),
        {{"bytes", bytes}, {"us", 1e3 * ms}, {"gb_per_s", gb_per_s}});
  }
}

// A weight gradient, whose tiles leave multiprocessors idle, concurrently with a norm, which is
// bound by memory.
void overlap(const Setting& setting, const Report& report) {
  const std::unique_ptr<Device> device = setting.plugin->make_device(0, 0);
  const std::unique_ptr<Stream> compute = device->make_stream(StreamPriority::kNormal);
  const std::unique_ptr<Stream> other = device->make_stream(StreamPriority::kNormal);
  const std::unique_ptr<Event> fork = device->make_event();
  const std::unique_ptr<Event> join = device->make_event();
  Tensors make(*device, *compute);
  const std::int64_t n = setting.small ? 64 : 65536, c = setting.small ? 24 : 768;
  const Tensor dy = make.normal({n, 4 * c}, DType::kBF16), x = make.normal({n, c}, DType::kBF16),
               dw = make.zeros({4 * c, c}, DType::kF32), y = make.zeros({n, c}, DType::kBF16),
               rstd = make.zeros({n}, DType::kF32);
  const auto product = [&](Stream& s) {
    gemm(s, {.d = dw, .c = dw, .a = dy, .b = x, .beta = 1.0F, .transpose_a = true});
  };
  const auto norm = [&](Stream& s) { rms_norm(s, {.y = y, .rstd = rstd, .x = x}); };
  const auto time = [&](const std::function<void()>& body) {
    body();
    compute->synchronize();
    other->synchronize();
    const auto graph = compute->capture([&] {
      for (int i = 0; i < 10; ++i)
        body();
    });
    return 100 * median_ms([&] {
             compute->launch(*graph);
             compute->synchronize();
           });
  };
  const double product_us = time([&] { product(*compute); });
  const double norm_us = time([&] { norm(*compute); });
  const double after_us = time([&] {
    product(*compute);
    norm(*compute);
  });
  const double beside_us = time([&] {
    compute->record(*fork);
    other->wait(*fork);
    norm(*other);
    product(*compute);
    other->record(*join);
    compute->wait(*join);
  });
  report(concat("dW ", fixed(product_us, 1), " us, a norm ", fixed(norm_us, 1),
                "; one after the other ", fixed(after_us, 1), ", on two branches ",
                fixed(beside_us, 1)),
         {{"product_us", product_us},
          {"norm_us", norm_us},
          {"after_us", after_us},
          {"beside_us", beside_us}});
}

constexpr std::pair<const char*, void (*)(const Setting&, const Report&)> kFacts[] = {
    {"queues_held", queues_held},
    {"ranks_meet", ranks_meet},
    {"calls_wait", calls_wait},
    {"launches_behind", launches_behind},
    {"gaps", gaps},
    {"copies", copies},
    {"overlap", overlap}};

int run(int argc, char** argv) {
  constexpr unsigned kMaxSeconds = 60;  // per fact
  Setting setting;
  std::string backend = "cuda";
  std::ofstream json;
  std::size_t from = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--small") {
      setting.small = true;
      setting.patience_ms = 500;
      continue;
    }
    if (option != "--json" && option != "--backend" && option != "--from")
      throw InputError(
          concat("unknown option '", option, "'; expected --small, --json, --backend, --from"));
    if (++i == argc) throw InputError(concat(option, " needs a value"));
    const std::string_view value = argv[i];
    if (option == "--backend") backend = value;
    if (option == "--json") {
      json.open(argv[i], std::ios::app);
      if (!json) throw InputError(concat("--json: cannot write ", value));
    }
    if (option == "--from" &&
        std::from_chars(value.data(), value.data() + value.size(), from).ec != std::errc())
      throw InputError(concat("--from: expected a number, got '", value, "'"));
  }
  // As load_cuda() does. CUDA reads the variable at its first call.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(kQueues).c_str(), 0);
  const LoadedPlugin loaded = backend == "cuda" ? load_cuda() : load_plugin("muograph_" + backend);
  if (loaded.plugin == nullptr) throw Error(loaded.missing);
  setting.plugin = loaded.plugin;
  int failed = 0;
  for (std::size_t i = from; i < std::size(kFacts); ++i) {
    const auto& [name, fact] = kFacts[i];
    const auto write = [&](const std::string& text, Json row) {
      row["fact"] = name;
      if (json.is_open()) json << row.dump() << std::endl;
      static_cast<void>(std::fputs(concat("[", i, "] ", name, ": ", text, "\n").c_str(), stdout));
      static_cast<void>(std::fflush(stdout));
    };
    alarm(kMaxSeconds);
    try {
      fact(setting, write);
    } catch (const std::exception& error) {
      write(concat("FAILED: ", error.what()), {{"error", error.what()}});
      ++failed;
    }
  }
  return failed > 0 ? 4 : 0;
}

}  // namespace
}  // namespace muo::bench

int main(int argc, char** argv) {
  try {
    return muo::bench::run(argc, argv);
  } catch (const muo::InputError& error) {
    static_cast<void>(std::fprintf(stderr, "gpu_facts: %s\n", error.what()));
    return 2;
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "gpu_facts: %s\n", error.what()));
    return 3;
  }
}
