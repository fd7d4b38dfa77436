// Bytes of text that one thread turns into ids per second.
//   MUO_BENCH_TOKENIZER=FILE MUO_BENCH_TEXT=FILE build/release/tokenizer_bench
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "base/file_bytes.h"
#include "data/tokenizer.h"

namespace muo {
namespace {

void encode_text(benchmark::State& state) {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing else runs
  const char* const tokenizer_path = std::getenv("MUO_BENCH_TOKENIZER");
  const char* const text_path = std::getenv("MUO_BENCH_TEXT");
  // NOLINTEND(concurrency-mt-unsafe)
  if (tokenizer_path == nullptr || text_path == nullptr) {
    state.SkipWithError("MUO_BENCH_TOKENIZER and MUO_BENCH_TEXT name the files");
    return;
  }
  const auto tokenizer = open_tokenizer(tokenizer_path);
  const FileBytes text{std::filesystem::path(text_path)};
  std::vector<std::int32_t> ids;
  for (auto _ : state) {
    ids.clear();
    tokenizer->encode(text.text(), 0, text.text().size(), ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.text().size()));
  state.counters["ids"] = static_cast<double>(ids.size());
}
BENCHMARK(encode_text)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muo

BENCHMARK_MAIN();
