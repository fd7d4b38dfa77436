// Tokens per second of the loaders of several ranks together, from shards of 100 million
// tokens in a temporary folder, whose documents have lengths like those of FineWeb. CPU time
// is that of all threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/token_data.h"

namespace muo {
namespace {

constexpr std::int32_t kBos = 50256;
constexpr std::int64_t kShardTokens = 50'000'000;

void write_shard(const std::filesystem::path& path, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> lengths(std::log(420.0), 0.9);  // a mean of 630 tokens
  std::vector<std::uint16_t> tokens;
  tokens.reserve(kShardTokens);
  std::int64_t left = 0;
  while (std::ssize(tokens) < kShardTokens) {
    const bool begins = left <= 0;
    if (begins) left = std::max<std::int64_t>(1, std::llround(lengths(random)));
    tokens.push_back(static_cast<std::uint16_t>(begins ? kBos : random() % kBos));
    --left;
  }
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(kShardTokens);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(header.data()), 1024);
  file.write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(2 * tokens.size()));
}

struct Shards {
  Shards() {
    std::filesystem::create_directories(path);
    write_shard(path / "train_0.bin", 1);
    write_shard(path / "train_1.bin", 2);
    write_shard(path / "val_0.bin", 3);
  }
  ~Shards() { std::filesystem::remove_all(path); }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  const std::filesystem::path path = std::filesystem::temp_directory_path() / "muo_loader_bench";
};

// Arguments: ranks; 0 contiguous, 1 best-fit.
void load(benchmark::State& state) {
  const auto world = static_cast<int>(state.range(0));
  static const Shards shards;
  const data::Corpus corpus =
      data::open_corpus({.paths = {shards.path},
                         .vocab_size = 50257,
                         .packing = static_cast<data::Packing>(state.range(1)),
                         .bos_token = kBos});
  struct Rank {
    std::unique_ptr<data::TrainingRows> rows;
    std::vector<std::byte> memory;
    std::unique_ptr<data::Loader> loader;
  };
  std::vector<Rank> ranks(static_cast<std::size_t>(world));
  data::LoaderOptions options{.world = world, .batch = 32, .seq_len = 2048};
  for (Rank& rank : ranks) {
    rank.rows = data::make_training_rows(corpus, options.seq_len, 1);
    const auto bytes = static_cast<std::size_t>(3 * data::Loader::slot_bytes(options));
    rank.memory.resize(bytes + 64);
    void* begin = rank.memory.data();
    std::size_t size = rank.memory.size();
    std::align(64, bytes, begin, size);
    rank.loader = std::make_unique<data::Loader>(*rank.rows, options,
                                                 std::span(static_cast<std::byte*>(begin), bytes));
    ++options.rank;
  }
  for (auto _ : state)
    for (Rank& rank : ranks) {
      benchmark::DoNotOptimize(rank.loader->next().inputs.data);
      rank.loader->release();
    }
  state.SetItemsProcessed(state.iterations() * world * options.batch * options.seq_len);
}
BENCHMARK(load)
    ->ArgNames({"ranks", "packed"})
    ->Args({1, 0})
    ->Args({1, 1})
    ->Args({8, 0})
    ->Args({8, 1})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muo

BENCHMARK_MAIN();
