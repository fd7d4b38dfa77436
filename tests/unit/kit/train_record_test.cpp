#include "kit/report/train_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace muo::kit {
namespace {

TEST(TrainRecords, AreReadAsTheLoggerWritesThem) {
  const auto record = parse_train_record(
      R"({"kind":"train","step":17,"tokens":4096,"loss":-1.25e-3,"mfu":null,"committed":false,)"
      R"("grad_norm":0.5,"of the future":"x","tokens_per_s":1e+5,"skipped":"nonfinite",)"
      R"("bad_number":"w[3] on rank 1","gradient_scale":0.25})");
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->step, 17);
  EXPECT_EQ(record->tokens, 4096);
  EXPECT_EQ(record->series[static_cast<std::size_t>(Series::kLoss)], -1.25e-3);
  EXPECT_EQ(record->series[static_cast<std::size_t>(Series::kGradNorm)], 0.5);
  EXPECT_EQ(record->series[static_cast<std::size_t>(Series::kTokensPerS)], 1e5);
  EXPECT_TRUE(std::isnan(record->series[static_cast<std::size_t>(Series::kMfu)]));
  EXPECT_TRUE(std::isnan(record->series[static_cast<std::size_t>(Series::kStepMs)]));
  EXPECT_EQ(record->gradient_scale, 0.25);
  EXPECT_EQ(record->skipped, "nonfinite");
  EXPECT_EQ(record->bad_number, "w[3] on rank 1");
}

// Lines that are left to the JSON library, which parses or rejects them.
TEST(TrainRecords, OfAnotherFormAreLeftAlone) {
  const std::string head = R"({"kind":"train","step":1)";
  ASSERT_TRUE(parse_train_record(head + "}").has_value());
  for (const char* rest : {"",
                           ",}",
                           "}}",
                           "} ",
                           " }",
                           R"(,"a")",
                           R"(,"a":})",
                           R"(,"a":1)",
                           R"(,"a":"x)",
                           R"(,"a":"\n"})",
                           ",\"a\":\"\xC3\xA4\"}",
                           ",\"a\":\"\t\"}",
                           R"(,"a":[1]})",
                           R"(,"a":{}})",
                           R"(,"a":01})",
                           R"(,"a":1.})",
                           R"(,"a":.5})",
                           R"(,"a":+1})",
                           R"(,"a":-})",
                           R"(,"a":1e999})",
                           R"(,"a":1-2})",
                           R"(,"a":NaN})",
                           R"(,"a":inf})",
                           R"(,"a":nul})",
                           R"(,"step":1.5})",
                           R"(,"step":-1})",
                           R"(,"step":null})",
                           R"(,"step":9223372036854775807})"})
    EXPECT_FALSE(parse_train_record(head + rest).has_value()) << rest;
  EXPECT_FALSE(parse_train_record(R"({"kind":"train"})").has_value());
  EXPECT_FALSE(parse_train_record(R"({"kind":"eval","step":1})").has_value());
  EXPECT_FALSE(parse_train_record(R"({"step":1,"kind":"train"})").has_value());
}

}  // namespace
}  // namespace muo::kit
