// Bytes of text per second that one thread tokenizes.
//   MUO_BENCH_TOKENIZER=FILE MUO_BENCH_TEXT=FILE [MUO_BENCH_LINES=1] build/release/tokenizer_bench
// With MUO_BENCH_LINES, each line is treated as a separate text.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/file_bytes.h"
#include "data/tokenizer.h"

namespace muo {
namespace {

void encode_text(benchmark::State& state) {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing else runs
  const char* const tokenizer_path = std::getenv("MUO_BENCH_TOKENIZER");
  const char* const text_path = std::getenv("MUO_BENCH_TEXT");
  const bool by_lines = std::getenv("MUO_BENCH_LINES") != nullptr;
  // NOLINTEND(concurrency-mt-unsafe)
  if (tokenizer_path == nullptr || text_path == nullptr) {
    state.SkipWithError("set MUO_BENCH_TOKENIZER and MUO_BENCH_TEXT to files");
    return;
  }
  const auto tokenizer = data::open_tokenizer(tokenizer_path);
  const FileBytes text{std::filesystem::path(text_path)};
  std::vector<std::string_view> texts = {text.text()};
  while (by_lines) {
    const std::string_view last = texts.back();
    const std::size_t end = last.find('\n');
    if (end == std::string_view::npos) break;
    texts.back() = last.substr(0, end);
    texts.push_back(last.substr(end + 1));
  }
  std::vector<std::int32_t> ids;
  for (auto _ : state) {
    ids.clear();
    for (const std::string_view each : texts)
      tokenizer->encode(each, 0, each.size(), ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.text().size()));
  state.counters["ids"] = static_cast<double>(ids.size());
}
BENCHMARK(encode_text)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muo

BENCHMARK_MAIN();
