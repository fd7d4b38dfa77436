#include "kernels/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo {
namespace {

using test::HostTensor;

std::vector<std::int32_t> starts_of(const HostTensor& tokens, std::int32_t document_token) {
  const HostTensor starts(tokens.tensor().shape, DType::kI32);
  for (std::int32_t& start : starts.values<std::int32_t>())
    start = -7;
  test::KernelStream stream;
  document_starts(stream, {.starts = starts, .tokens = tokens, .document_token = document_token});
  return {starts.values<std::int32_t>().begin(), starts.values<std::int32_t>().end()};
}

TEST(DocumentStarts, AreThoseOfTheLastTokenThatBeginsOne) {
  const HostTensor tokens({2, 5}, std::vector<std::int32_t>{5, 9, 5, 9, 9, 9, 5, 5, 5, 9});
  EXPECT_THAT(starts_of(tokens, 9), testing::ElementsAre(0, 1, 1, 3, 4, 0, 0, 0, 0, 4));
  EXPECT_THAT(starts_of(tokens, 4), testing::Each(0));
}

// Rows with about as many tokens as one or several warps have lanes. Some rows have
// no document token.
TEST(DocumentStarts, OfManyRowsAreFoundFromTheLeft) {
  for (const std::int64_t t : {1, 31, 32, 33, 64, 100, 257})
    for (const std::int32_t vocab : {1, 2, 40, 500}) {
      constexpr std::int64_t kRows = 7;
      HostTensor tokens({kRows, t}, DType::kI32);
      const HostTensor drawn = test::random_tokens(kRows * t, vocab, "tokens");
      std::ranges::copy(drawn.values<std::int32_t>(), tokens.values<std::int32_t>().begin());
      std::vector<std::int32_t> want;
      for (std::int64_t i = 0; i < kRows * t; ++i) {
        std::int64_t start = i % t;
        while (start > 0 &&
               tokens.values<std::int32_t>()[static_cast<std::size_t>(i - i % t + start)] != 0)
          --start;
        want.push_back(static_cast<std::int32_t>(start));
      }
      EXPECT_EQ(starts_of(tokens, 0), want) << t << ", " << vocab;
    }
}

TEST(DocumentStarts, RefusesMismatchedTensors) {
  test::KernelStream stream;
  const HostTensor tokens({2, 5}, DType::kI32), starts({2, 4}, DType::kI32);
  EXPECT_THAT(test::message_of<Error>(
                  [&] { document_starts(stream, {.starts = starts, .tokens = tokens}); }),
              testing::HasSubstr("document_starts: starts is (2, 4), expected (2, 5)"));
}

}  // namespace
}  // namespace muo
