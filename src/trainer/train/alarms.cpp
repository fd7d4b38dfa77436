#include "trainer/train/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/median.h"

namespace muo::trainer {
namespace {

constexpr std::size_t kWindow = 21;  // steps
constexpr int kEvery = 7;            // steps between two evaluations of the window
constexpr double kLasting = 10;      // seconds
constexpr double kSlow = 1.5;        // times the normal step
constexpr double kWarmUp = 60;       // seconds until memory has reached its steady state
constexpr double kGrowth = 1.25;     // an alarm needs this multiple of the normal value, and
constexpr std::int64_t kGrown = std::int64_t{256} << 20;  // this many bytes above it
constexpr double kBetweenAlarms = 600;                    // seconds

void push(std::deque<double>& window, double value) {
  window.push_back(value);
  if (window.size() > kWindow) window.pop_front();
}

// Returns true once `is_so` has been true in every call for kLasting seconds.
bool lasts(std::optional<double>& since, bool is_so, double now) {
  if (!is_so) {
    since.reset();
    return false;
  }
  if (!since) since = now;
  return now - *since >= kLasting;
}

}  // namespace

std::vector<Alarm> Alarms::after_step(const Step& step, double now) {
  if (!step.outlier.empty()) raise("loss", step.outlier, now);
  check_speed(step, now);
  if (step.memory) check_memory(*step.memory, now);
  return std::exchange(raised_, {});
}

std::vector<Alarm> Alarms::after_update(const UpdateSizes& sizes, double now) {
  for (const auto& [group, is_scalars, size] : sizes.groups) {
    if (is_scalars) continue;
    const double ratio = size.ratio.value_or(0);
    int& steps = unusual_updates_[group];
    steps = ratio < kMinRatio || ratio > kMaxRatio ? steps + 1 : 0;
    if (steps == 0 || steps % kUnusualSteps != 0) continue;
    raise("update",
          fmt::format("step {}: warning: for {} steps each update of {} has been {} {:g} of its "
                      "weights' size (now {:.2g}): is its learning rate too {}?",
                      sizes.step, steps, group, ratio < kMinRatio ? "less than" : "more than",
                      ratio < kMinRatio ? kMinRatio : kMaxRatio, ratio,
                      ratio < kMinRatio ? "low" : "high"),
          now);
  }
  return std::exchange(raised_, {});
}

std::string Alarms::suppressed() const {
  std::string out;
  for (const auto& [kind, last] : last_)
    if (last.suppressed > 0)
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", kind, last.suppressed);
  return out;
}

void Alarms::forget_speed() {
  ms_.clear();
  waited_ms_.clear();
  normal_ms_.reset();
  slow_since_.reset();
}

void Alarms::check_speed(const Step& step, double now) {
  push(ms_, step.ms);
  push(waited_ms_, step.waited_ms);
  if (++steps_ % kEvery != 0 || ms_.size() < kWindow) return;
  const double median_ms = median({ms_.begin(), ms_.end()});
  normal_ms_ = std::min(normal_ms_.value_or(median_ms), median_ms);
  const double waited = std::accumulate(waited_ms_.begin(), waited_ms_.end(), 0.0) /
                        std::accumulate(ms_.begin(), ms_.end(), 0.0);
  // Steps that wait for data are slow for that reason: raise no second alarm.
  const bool starved = waited > max_waiting_;
  if (lasts(starved_since_, starved, now))
    raise("data",
          fmt::format("step {}: warning: steps wait {:.0f} % of their time for data: is the disk "
                      "that holds the data slow or busy?",
                      step.step, 100 * waited),
          now);
  if (lasts(slow_since_, !starved && median_ms > kSlow * *normal_ms_, now))
    raise("throughput",
          fmt::format("step {}: warning: a step takes {:.4g} ms, {:.2g} times the normal {:.4g} "
                      "ms: is another program using this machine, or is it throttled?",
                      step.step, median_ms, median_ms / *normal_ms_, *normal_ms_),
          now);
}

void Alarms::check_memory(std::int64_t bytes, double now) {
  if (!began_) began_ = now;
  if (now - *began_ < kWarmUp) return;
  if (!normal_memory_) normal_memory_ = warm_memory_ = bytes;
  const auto normal = static_cast<double>(*normal_memory_);
  if (static_cast<double>(bytes) < kGrowth * normal || bytes < *normal_memory_ + kGrown) return;
  raise("memory",
        fmt::format("warning: the process holds {} MiB, {} MiB more than after warm-up: this looks "
                    "like a leak; please report it",
                    bytes >> 20, (bytes - warm_memory_) >> 20),
        now);
  normal_memory_ = bytes;
}

void Alarms::raise(std::string_view kind, std::string text, double now) {
  const auto last = last_.find(kind);
  if (last != last_.end() && now - last->second.at < kBetweenAlarms) {
    ++last->second.suppressed;
    return;
  }
  if (last != last_.end() && last->second.suppressed > 0)
    text += fmt::format(" ({} more like this in the last {:.0f} minutes)", last->second.suppressed,
                        (now - last->second.at) / 60);
  last_[kind] = {.at = now};
  raised_.push_back({kind, std::move(text)});
}

}  // namespace muo::trainer
