#include "runtime/power_meter.h"

#include <algorithm>

namespace muo {

void PowerUse::add(const PowerUse& other) {
  const int both = devices + other.devices;
  if (both == 0) return;
  const auto mean = [&](double own, double others) {
    return (own * devices + others * other.devices) / both;
  };
  clock_mhz = mean(clock_mhz, other.clock_mhz);
  limit_watts = mean(limit_watts, other.limit_watts);
  seconds = std::max(seconds, other.seconds);
  joules += other.joules;
  devices = both;
}

PowerMeter::PowerMeter(const GroupOptions& group)
    : plugin_(group.plugin),
      first_(group.first_device),
      count_(group.plugin != nullptr && group.plugin->read_power != nullptr ? group.devices_here()
                                                                            : 0) {
  take();
}

std::optional<PowerReading> PowerMeter::read() {
  PowerReading out;
  for (int i = 0; i < count_; ++i) {
    const std::optional<PowerReading> one = plugin_->read_power(first_ + i);
    if (!one) {
      count_ = 0;  // the driver reports no energy
      return std::nullopt;
    }
    out.joules += one->joules;
    out.clock_mhz += one->clock_mhz / count_;
    out.limit_watts += one->limit_watts / count_;
  }
  return count_ > 0 ? std::optional(out) : std::nullopt;
}

void PowerMeter::sample() {
  constexpr std::chrono::milliseconds kPeriod(50);
  const Clock::time_point now = Clock::now();
  if (count_ == 0 || now - sampled_ < kPeriod) return;
  sampled_ = now;
  if (const auto reading = read()) {
    clocks_ += reading->clock_mhz;
    ++samples_;
  }
}

std::optional<PowerUse> PowerMeter::take() {
  const std::optional<PowerReading> end = read();
  const Clock::time_point now = Clock::now();
  std::optional<PowerUse> out;
  if (end && begin_)
    out = {.devices = count_,
           .seconds = std::chrono::duration<double>(now - began_).count(),
           .joules = end->joules - begin_->joules,
           .clock_mhz = samples_ > 0 ? clocks_ / samples_ : end->clock_mhz,
           .limit_watts = end->limit_watts};
  begin_ = end;
  began_ = now;
  clocks_ = samples_ = 0;
  return out;
}

std::optional<PowerUse> PowerMeter::recent(std::chrono::milliseconds period) {
  if (Clock::now() - began_ >= period) recent_ = take();
  return recent_;
}

}  // namespace muo
