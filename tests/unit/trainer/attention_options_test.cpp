#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/check.h"
#include "support/environment.h"
#include "support/errors.h"
#include "trainer/run/described_gpu.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {
namespace {

using test::message_of;
using testing::Contains;
using testing::HasSubstr;

RunConfig resolved(const TrainOptions& options) {
  return resolve(options, data::corpus_without_tokens(options.data));
}

// A described GPU has cuDNN, whose gradients are faster in non-deterministic order, or warpgroups,
// with which measured products are used. The SIMT tier has neither.
TEST(AttentionOptions, DeterminismIsGivenUpOnlyForSpeed) {
  const DescribedAttention cudnn(described_gpu("a100"));
  TrainOptions options;
  const auto deterministic = [&] {
    const RunConfig run = resolved(options);
    EXPECT_EQ(run.model.attention.deterministic, run.resolved().numbers.deterministic);
    return run.model.attention.deterministic;
  };
  options.devices.backend = Backend::kHost;
  EXPECT_TRUE(deterministic());
  options.devices.described = "h100";
  EXPECT_FALSE(deterministic());
  EXPECT_THAT(resolved(options).notes, Contains(HasSubstr("deterministic: off: ")));
  options.numbers.deterministic = true;
  EXPECT_TRUE(deterministic());
  options.numbers.deterministic.reset();
  {
    const DescribedAttention warpgroups(described_gpu("h100"));
    EXPECT_FALSE(deterministic());
    EXPECT_THAT(resolved(options).notes,
                Contains(HasSubstr("deterministic: off: runs on other GPUs")));
    options.numbers.tune = Tune::kOff;
    EXPECT_TRUE(deterministic());
    options.numbers.tune.reset();
  }
  for (const auto& [change, undo] :
       {std::pair<void (*)(TrainOptions&), void (*)(TrainOptions&)>{
            [](TrainOptions& o) { o.numbers.dtype = DType::kF32; },
            [](TrainOptions& o) { o.numbers.dtype.reset(); }},
        {[](TrainOptions& o) { o.numbers.attention = AttentionKernels::kOwn; },
         [](TrainOptions& o) { o.numbers.attention = AttentionKernels::kAuto; }},
        {[](TrainOptions& o) { o.model.document_mask = true; },
         [](TrainOptions& o) { o.model.document_mask = false; }}}) {
    change(options);
    EXPECT_TRUE(deterministic());
    EXPECT_THAT(resolved(options).notes, Contains(HasSubstr("deterministic: on, ")));
    undo(options);
  }
}

TEST(AttentionOptions, AreForGpusOnly) {
  TrainOptions options;
  options.devices.count = 2;
  options.devices.backend = Backend::kHost;
  options.numbers.deterministic = false;  // the host is always deterministic
  const RunConfig host = resolved(options);
  EXPECT_THAT(host.notes, testing::Each(testing::Not(HasSubstr("deterministic"))));
  EXPECT_EQ(host.resolved().numbers.deterministic, false);
  options.numbers.attention = AttentionKernels::kOwn;
  EXPECT_EQ(message_of<InputError>([&] { resolved(options); }),
            "--attention own: requires GPUs; the host has one implementation: give auto");
  {
    const test::SimtForCuda simt;
    options.devices.backend = Backend::kCuda;
    const RunConfig device = resolved(options);
    EXPECT_EQ(device.model.attention.kernels, AttentionKernels::kOwn);
    EXPECT_FALSE(device.model.attention.deterministic);
    EXPECT_THAT(device.notes, Contains(HasSubstr("deterministic: off: ")));
    const test::ScopedEnvironment kernels("MUO_ATTENTION", "portable");
    EXPECT_EQ(resolved(options).resolved().numbers.attention, AttentionKernels::kOwn)
        << "the option wins";
    options.numbers.attention = AttentionKernels::kAuto;
    const RunConfig by_environment = resolved(options);
    EXPECT_EQ(by_environment.resolved().numbers.attention, AttentionKernels::kPortable);
    EXPECT_THAT(by_environment.notes, Contains("attention: portable (MUO_ATTENTION)"));
    options.devices.backend = Backend::kHost;
    EXPECT_EQ(resolved(options).resolved().numbers.attention, AttentionKernels::kAuto)
        << "a GPU's variable";
  }
  const test::ScopedEnvironment kernels("MUO_ATTENTION", "flash");
  EXPECT_THAT(message_of<InputError>([&] { resolved(options); }),
              HasSubstr("MUO_ATTENTION: 'flash' is unknown"));
}

}  // namespace
}  // namespace muo::trainer
