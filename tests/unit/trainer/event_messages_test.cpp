#include "trainer/train/event_messages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace muo::trainer {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes)
    out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return out;
}

const std::vector<Hparam> kHparams = {
    {"lr", 0.25}, {"skip", false}, {"strategy", std::string("ddp")}};

// The expected bytes were made by Google's protobuf with the message classes of TensorBoard 2.21.
TEST(EventMessages, MatchProtobuf) {
  EXPECT_EQ(hex(file_version_event(1.5)), "09000000000000f83f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(hex(session_start_event({1.5, 300})), "09000000000000f83f10ac023a020801");
  const std::array<Scalar, 2> scalars = {{{"train/loss", 2.5}, {"train/mfu", 0}}};
  EXPECT_EQ(hex(scalars_event({1.5, 7}, scalars)),
            "09000000000000f83f10072a250a110a0a747261696e2f6c6f737315000020400a100a0974726169"
            "6e2f6d66751500000000");
  EXPECT_EQ(hex(text_event({1.5, std::int64_t{1} << 40}, "sample", "to be")),
            "09000000000000f83f108080808080202a210a1f0a0673616d706c65420b080712004205746f2062"
            "654a080a060a0474657874");
}

TEST(EventMessages, OfHparamsMatchProtobuf) {
  const std::array<std::string_view, 1> metrics = {kValBpbTag};
  EXPECT_EQ(hex(hparams_experiment_event({1.5, 0}, kHparams, metrics)),
            "09000000000000f83f2a6c0a6a0a145f68706172616d735f2f6578706572696d656e744206080112"
            "0212004a4a0a480a0768706172616d73123d123b19000000000000f83f22060a026c72200322080a"
            "04736b69702002220c0a08737472617465677920012a100a0e120c6576616c2f76616c5f627062");
  EXPECT_EQ(hex(hparams_start_event({1.5, 0}, kHparams, "g")),
            "09000000000000f83f2a750a730a1c5f68706172616d735f2f73657373696f6e5f73746172745f69"
            "6e666f42060801120212004a4b0a490a0768706172616d73123e1a3c0a0f0a026c72120911000000"
            "000000d03f0a0a0a04736b6970120220000a110a08737472617465677912051a0364647022016729"
            "000000000000f83f");
  EXPECT_EQ(hex(hparams_end_event({1.5, 0}, TrialEnd::kSuccess)),
            "09000000000000f83f2a420a400a1a5f68706172616d735f2f73657373696f6e5f656e645f696e66"
            "6f42060801120212004a1a0a180a0768706172616d73120d220b080111000000000000f83f");
}

// The other bits of a NaN may have any value, because TensorBoard only checks that it is a NaN.
TEST(EventMessages, KeepNonFiniteNumbers) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::array<Scalar, 1> infinite = {{{"x", kInfinity}}};
  EXPECT_EQ(hex(scalars_event({1.5, 0}, infinite)), "09000000000000f83f2a0a0a080a0178150000807f");
  const std::array<Scalar, 1> none = {{{"x", std::numeric_limits<double>::quiet_NaN()}}};
  EXPECT_EQ(hex(scalars_event({1.5, 0}, none)).substr(0, 36),
            "09000000000000f83f2a0a0a080a01781500");
  EXPECT_EQ(hex(scalars_event({1.5, 0}, none)).substr(38), "c07f");
}

TEST(EventMessages, ARecordHasChecksumsOfLengthAndEvent) {
  EXPECT_EQ(hex(tf_record(file_version_event(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
}

TEST(EventMessages, LiteralMarkdownIndentsEveryLine) {
  EXPECT_EQ(literal_markdown("# a\n\n* b"), "    # a\n    \n    * b");
}

}  // namespace
}  // namespace muo::trainer
