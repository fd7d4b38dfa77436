#include "kernels/take_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo {
namespace {

using test::HostTensor;
using testing::HasSubstr;

HostTensor index_of(std::int64_t index) { return {{1}, std::vector{index}}; }

TEST(TakeRow, CopiesTheRowThatTheIndexNames) {
  test::KernelStream stream;
  for (const Shape& shape : {Shape{3, 1}, Shape{4, 2, 3}, Shape{2, 1, 700}, Shape{5}}) {
    const HostTensor rows(shape, DType::kI32);
    const std::span all = rows.values<std::int32_t>();
    std::iota(all.begin(), all.end(), -3);
    const auto length = all.size() / static_cast<std::size_t>(shape[0]);
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      const HostTensor out(rows.tensor().row(0).shape, DType::kI32);
      take_row(stream, {.out = out, .rows = rows, .index = index_of(i)});
      EXPECT_TRUE(std::ranges::equal(out.values<std::int32_t>(),
                                     all.subspan(static_cast<std::size_t>(i) * length, length)))
          << shape.text() << " row " << i;
    }
  }
}

TEST(TakeRow, NamesAWrongArgument) {
  test::KernelStream stream;
  const HostTensor rows({3, 4}, DType::kI32);
  const HostTensor out({4}, DType::kI32);
  const auto message = [&](const TakeRowArgs& args) {
    return test::message_of<Error>([&] { take_row(stream, args); });
  };
  EXPECT_THAT(message({.out = rows, .rows = rows, .index = index_of(0)}), HasSubstr("out"));
  EXPECT_THAT(message({.out = out, .rows = rows, .index = HostTensor({1})}), HasSubstr("index"));
  EXPECT_THAT(message({.out = rows.tensor().row(1), .rows = rows, .index = index_of(0)}),
              HasSubstr("rows"));
  EXPECT_THAT(message({.out = out, .rows = HostTensor({0, 4}, DType::kI32), .index = index_of(0)}),
              HasSubstr("no row"));
  if (!stream.is_host()) return;  // a kernel cannot throw: it prints and stops the device
  for (const std::int64_t index : {-1, 3})
    EXPECT_THAT(message({.out = out, .rows = rows, .index = index_of(index)}),
                HasSubstr("index " + std::to_string(index) + " of 3 rows"));
}

}  // namespace
}  // namespace muo
