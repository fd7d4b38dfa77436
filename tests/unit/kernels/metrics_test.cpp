#include "kernels/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/step_scalars.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

constexpr std::int64_t kSlots = 3;

struct Ring {
  KernelStream stream;
  HostTensor ring{{kSlots * static_cast<std::int64_t>(sizeof(MetricsRecord))}, DType::kBytes};
  HostTensor scalars{{static_cast<std::int64_t>(sizeof(StepScalars))}, DType::kBytes};
  HostTensor totals{{kRankIndices + 3}, DType::kF64};

  double places[3] = {};

  [[nodiscard]] const MetricsRecord& record(std::int64_t slot) const {
    return ring.tensor().as_struct<MetricsRecord>()[slot];
  }
  void write(std::int64_t step, std::int64_t updates, int committed) {
    StepScalars s;
    s.step = step;
    s.updates = updates;
    s.commit = committed;
    s.verdict = committed == 1 ? Verdict::kOutlier : Verdict::kNotFinite;
    s.loss_deviations = 6.5F;
    s.norm_deviations = 7.5F;
    s.gradient_scale = 0.75F;
    s.lr_multiplier = 0.25F + static_cast<float>(step);
    s.muon_momentum = 0.875F;
    s.muon_weight_decay = 0.125F;
    *scalars.tensor().as_struct<StepScalars>() = s;
    totals.values<double>()[0] = 2.5 + static_cast<double>(step);
    totals.values<double>()[1] = 2.0;
    std::copy_n(places, 3, totals.tensor().as<double>() + kRankIndices);
    write_metrics(stream, {.ring = ring, .totals = totals, .scalars = scalars});
  }
};

TEST(WriteMetrics, FillsTheSlotOfTheStep) {
  Ring ring;
  ring.write(4, 2, 1);
  const MetricsRecord& got = ring.record(4 % kSlots);
  EXPECT_EQ(got.sequence, 5);
  EXPECT_EQ(got.step, 4);
  EXPECT_EQ(got.updates, 3);  // including this one
  EXPECT_EQ(got.committed, 1);
  EXPECT_EQ(got.verdict, Verdict::kOutlier);
  EXPECT_EQ(got.loss_deviations, 6.5F);
  EXPECT_EQ(got.norm_deviations, 7.5F);
  EXPECT_EQ(got.gradient_scale, 0.75F);
  EXPECT_EQ(got.lr_multiplier, 4.25F);
  EXPECT_EQ(got.muon_momentum, 0.875F);
  EXPECT_EQ(got.muon_weight_decay, 0.125F);
  EXPECT_EQ(got.loss, 6.5);
  EXPECT_NEAR(got.grad_norm, std::sqrt(2.0), 2 * kUnitF64 * std::sqrt(2.0));
  for (const std::int64_t slot : {0, 2})
    EXPECT_EQ(ring.record(slot).sequence, 0) << slot;  // never written
}

TEST(WriteMetrics, NamesTheRankWithTheLowestIndex) {
  Ring ring;
  ring.write(0, 0, 1);
  EXPECT_EQ(ring.record(0).bad_index, -1);
  EXPECT_EQ(ring.record(0).bad_rank, -1);
  ring.places[1] = kNoIndex - 123456789;
  ring.places[2] = kNoIndex - 12345678901;
  ring.write(1, 1, 0);
  EXPECT_EQ(ring.record(1).bad_index, 123456789);
  EXPECT_EQ(ring.record(1).bad_rank, 1);
}

TEST(WriteMetrics, TheNextLapReplacesARecord) {
  Ring ring;
  for (std::int64_t step = 0; step <= kSlots; ++step)
    ring.write(step, step, 0);
  EXPECT_EQ(ring.record(0).sequence, kSlots + 1);
  EXPECT_EQ(ring.record(0).step, kSlots);
  EXPECT_EQ(ring.record(0).updates, kSlots);  // not committed, so not counted
  EXPECT_EQ(ring.record(1).sequence, 2);
  EXPECT_EQ(ring.record(2).sequence, 3);
}

}  // namespace
}  // namespace muo::test
