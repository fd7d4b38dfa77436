// Compiled with -ffp-contract=fast (tests/CMakeLists.txt), in a namespace of its own, so that the
// linker does not merge it with inline functions of other files.
#define muo muo_contracted  // NOLINT(readability-identifier-naming)
#include "base/box_muller.h"
#undef muo
#include "contracted_box_muller.h"

namespace muo::test {

double contracted_box_muller(std::uint32_t first, std::uint32_t second) {
  return muo_contracted::box_muller(first, second);
}

}  // namespace muo::test
