#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "app/train/run_config.h"
#include "base/check.h"
#include "support/environment.h"
#include "support/errors.h"

namespace muo {
namespace {

using test::message_of;
using testing::Contains;
using testing::HasSubstr;

RunConfig resolved(const TrainOptions& options) {
  return resolve(options, vocabulary_only(options));
}

TEST(AttentionOptions, AreAChoiceOfGpus) {
  TrainOptions options;
  options.devices.count = 2;
  options.devices.backend = "host";
  options.numbers.deterministic = false;  // the host is, always
  const RunConfig host = resolved(options);
  EXPECT_THAT(host.notes, testing::Each(testing::Not(HasSubstr("deterministic"))));
  EXPECT_FALSE(host.options.numbers.deterministic);
  options.numbers.attention = "own";
  EXPECT_EQ(message_of<InputError>([&] { resolved(options); }),
            "--attention own: is for GPUs, the host has one way to compute: give auto");
  {
    const test::SimtForCuda simt;
    options.devices.backend = "cuda";
    const RunConfig device = resolved(options);
    EXPECT_EQ(device.model.attention.kernels, AttentionKernels::kOwn);
    EXPECT_FALSE(device.model.attention.deterministic);
    EXPECT_THAT(device.notes, Contains(HasSubstr("deterministic: off: ")));
    const test::ScopedEnvironment kernels("MUO_ATTENTION", "portable");
    EXPECT_EQ(resolved(options).options.numbers.attention, "own") << "the option wins";
    options.numbers.attention = "auto";
    const RunConfig by_environment = resolved(options);
    EXPECT_EQ(by_environment.options.numbers.attention, "portable");
    EXPECT_THAT(by_environment.notes, Contains("attention: portable (MUO_ATTENTION)"));
    options.devices.backend = "host";
    EXPECT_EQ(resolved(options).options.numbers.attention, "auto") << "a GPU's variable";
  }
  const test::ScopedEnvironment kernels("MUO_ATTENTION", "flash");
  EXPECT_THAT(message_of<InputError>([&] { resolved(options); }),
              HasSubstr("MUO_ATTENTION: 'flash' is unknown"));
}

}  // namespace
}  // namespace muo
