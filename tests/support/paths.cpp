#include "support/paths.h"

#include <cstdlib>

namespace muo::test {

std::string source_directory() {
  const char* elsewhere = std::getenv("MUO_TEST_SOURCES");  // NOLINT(concurrency-mt-unsafe)
  return elsewhere == nullptr ? MUO_SOURCE_DIR : elsewhere;
}
std::string program() { return MUO_PROGRAM; }

}  // namespace muo::test
