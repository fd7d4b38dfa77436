// The entry point of libFuzzer, for the target that MUO_FUZZ_TARGET names (scripts/fuzz.sh).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/targets.h"

namespace {

const muo::fuzz::Target& target() {
  // NOLINTBEGIN(concurrency-mt-unsafe): libFuzzer has one thread
  const char* name = std::getenv("MUO_FUZZ_TARGET");
  const auto all = muo::fuzz::targets();
  const auto found = std::ranges::find(all, std::string_view(name == nullptr ? "" : name),
                                       &muo::fuzz::Target::name);
  if (found == all.end()) {
    static_cast<void>(std::fputs("MUO_FUZZ_TARGET names no target\n", stderr));
    std::exit(2);
  }
  // NOLINTEND(concurrency-mt-unsafe)
  return *found;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const muo::fuzz::Target& chosen = target();
  chosen.run(std::as_bytes(std::span(data, size)));
  return 0;
}
