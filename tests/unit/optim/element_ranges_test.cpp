#include "optim/element_ranges.h"

#include <gmock/gmock.h>

#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo::test {
namespace {

std::vector<float> zeroed_outside(std::int64_t origin, const std::vector<optim::Range>& ranges) {
  const HostTensor tensor({6}, std::vector<float>{1, 2, 3, 4, 5, 6});
  KernelStream stream;
  optim::zero_outside(stream, tensor, origin, ranges);
  return {tensor.values().begin(), tensor.values().end()};
}

TEST(ZeroOutside, KeepsOnlyTheRanges) {
  using testing::ElementsAre;
  EXPECT_THAT(zeroed_outside(0, {{1, 2}, {4, 5}}), ElementsAre(0, 2, 0, 0, 5, 0));
  EXPECT_THAT(zeroed_outside(0, {{0, 3}, {3, 6}}), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(zeroed_outside(0, {}), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(ZeroOutside, CountsRangesFromTheOrigin) {
  EXPECT_THAT(zeroed_outside(10, {{10, 11}, {13, 15}}), testing::ElementsAre(1, 0, 0, 4, 5, 0));
}

}  // namespace
}  // namespace muo::test
