// Compiled with -ffp-contract=fast (tests/CMakeLists.txt). Under a name of its own, or the linker
// could take the functions of another file's headers.
#define muo muo_contracted
#include "base/philox.h"
#undef muo
#include "contracted_normal.h"

namespace muo::test {

float contracted_normal(std::uint64_t seed, std::string_view name, std::uint64_t index) {
  return muo_contracted::CounterRandom(seed, name).normal(index);
}

}  // namespace muo::test
