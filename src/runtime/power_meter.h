#pragma once

#include <chrono>
#include <optional>

#include "runtime/device_group.h"

namespace muo {

// Energy and clock of some devices over a period.
struct PowerUse {
  int devices = 0;  // 0: unknown
  double seconds = 0;
  double joules = 0;       // of all devices
  double clock_mhz = 0;    // mean over devices and samples
  double limit_watts = 0;  // mean over devices; 0: unknown

  [[nodiscard]] double watts() const { return joules / seconds / devices; }  // mean of a device
  // Adds devices that were measured at the same time.
  void add(const PowerUse& other);
};

// Measures the energy and the clock of this process's devices. Drivers update their energy counters
// some ten times a second, so that a time much shorter than a second is measured badly. Not
// thread-safe.
class PowerMeter {
 public:
  explicit PowerMeter(const GroupOptions& group);

  // Samples the clocks, at most 20 times a second. Call it while the devices are busy.
  void sample();
  // Returns the use since the last call, or since construction. Empty on the host, and if a driver
  // does not report the energy of a device.
  std::optional<PowerUse> take();
  // Measures anew if `period` has passed since the last measurement, else returns the result of the
  // last such call. Empty before the first.
  std::optional<PowerUse> recent(std::chrono::milliseconds period);

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<PowerReading> read();  // energy: sum of the devices; others: means

  const BackendPlugin* plugin_;
  int first_, count_;  // indices of the devices
  std::optional<PowerReading> begin_;
  std::optional<PowerUse> recent_;
  Clock::time_point began_, sampled_;
  double clocks_ = 0;  // sum of `samples_` clocks
  int samples_ = 0;
};

}  // namespace muo
