#include "runtime/power_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace muo {
namespace {

// Readings of three devices; the test sets them.
std::array<std::optional<PowerReading>, 3> readings;

const BackendPlugin kPlugin{
    .read_power = [](int index) { return readings.at(static_cast<std::size_t>(index)); }};
// Devices 1 and 2, each with two ranks.
const GroupOptions kGroup{.world = 4, .plugin = &kPlugin, .ranks_per_device = 2, .first_device = 1};

void set(double joules1, double clock1, double joules2, double clock2) {
  readings[1] = {.joules = joules1, .clock_mhz = clock1, .limit_watts = 700};
  readings[2] = {.joules = joules2, .clock_mhz = clock2, .limit_watts = 500};
}

TEST(PowerMeter, SumsTheEnergyOfItsDevicesSinceTheLastCall) {
  set(1000, 1500, 50, 1400);
  PowerMeter meter(kGroup);
  set(1003, 1800, 54, 1900);
  meter.sample();
  set(1030, 1600, 90, 1700);
  meter.sample();  // too soon: ignored
  const std::optional<PowerUse> use = meter.take();
  ASSERT_TRUE(use);
  EXPECT_EQ(use->devices, 2);
  EXPECT_DOUBLE_EQ(use->joules, 70);
  EXPECT_DOUBLE_EQ(use->clock_mhz, 1850);
  EXPECT_DOUBLE_EQ(use->limit_watts, 600);
  EXPECT_GT(use->seconds, 0);
  EXPECT_DOUBLE_EQ(use->watts(), 35 / use->seconds);

  set(1031, 1200, 92, 1100);
  const std::optional<PowerUse> more = meter.take();
  ASSERT_TRUE(more);
  EXPECT_DOUBLE_EQ(more->joules, 3);
  EXPECT_DOUBLE_EQ(more->clock_mhz, 1150);  // without samples: at the end
}

TEST(PowerMeter, MeasuresAgainAfterAPeriod) {
  set(0, 1500, 0, 1500);
  PowerMeter meter(kGroup);
  set(2, 1500, 5, 1500);
  EXPECT_FALSE(meter.recent(std::chrono::hours(1)));
  EXPECT_DOUBLE_EQ(meter.recent({}).value().joules, 7);
  set(3, 1500, 5, 1500);
  EXPECT_DOUBLE_EQ(meter.recent(std::chrono::hours(1)).value().joules, 7);
  EXPECT_DOUBLE_EQ(meter.recent({}).value().joules, 1);
}

TEST(PowerMeter, IsEmptyIfADeviceReportsNoEnergy) {
  set(1, 1, 1, 1);
  EXPECT_FALSE(PowerMeter({.world = 2}).take());
  const BackendPlugin silent;
  EXPECT_FALSE(PowerMeter({.plugin = &silent}).take());
  readings[2] = {};
  PowerMeter meter(kGroup);
  meter.sample();
  EXPECT_FALSE(meter.take());
}

TEST(PowerUse, AddsDevicesOfOtherProcesses) {
  PowerUse sum;
  sum.add({});
  sum.add({.devices = 1, .seconds = 2, .joules = 1000, .clock_mhz = 1500, .limit_watts = 700});
  sum.add({.devices = 3, .seconds = 1.9, .joules = 3600, .clock_mhz = 1900, .limit_watts = 500});
  EXPECT_EQ(sum.devices, 4);
  EXPECT_DOUBLE_EQ(sum.watts(), 4600.0 / 2 / 4);
  EXPECT_DOUBLE_EQ(sum.clock_mhz, 1800);
  EXPECT_DOUBLE_EQ(sum.limit_watts, 550);
}

// The plug-in finds each GPU in NVML by its UUID. The stand-in's GPU i consumes 300 + 10 i watts.
TEST(PowerReading, IsThatOfTheGpu) {
  const LoadedPlugin simt = load_plugin("muograph_simt");
  ASSERT_TRUE(simt.plugin) << simt.missing;
  const auto read = simt.plugin->read_power;
  std::optional<PowerReading> first, other, again;
  do {  // until the counters did not change meanwhile
    first = read(0);
    other = read(3);
    again = read(0);
    ASSERT_TRUE(first && other && again);
  } while (first->joules != again->joules);
  EXPECT_DOUBLE_EQ(other->joules * 300, first->joules * 330);
  EXPECT_EQ(first->clock_mhz, 1500);
  EXPECT_EQ(other->clock_mhz, 1545);
  EXPECT_EQ(other->limit_watts, 700);
}

}  // namespace
}  // namespace muo
