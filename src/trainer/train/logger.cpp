#include "trainer/train/logger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/durable_files.h"
#include "base/recent_mean.h"
#include "base/strict_json.h"
#include "base/system_error_text.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "base/threads.h"
#include "runtime/rank_progress.h"
#include "trainer/train/event_log.h"
#include "trainer/train/log_lines.h"
#include "trainer/train/status_line.h"

namespace muo::trainer {
namespace {

constexpr std::chrono::seconds kSecond(1);
constexpr std::size_t kQueued = 4096;  // records

struct TrainItem {
  MetricsRecord record;
  double step_ms = 0, waited_ms = 0;
  std::string bad_number;
};
struct PaceItem {
  Pace pace;
  double seconds = 0;
};
struct EvalItem {
  std::int64_t step = 0;
  double loss = 0;
  double bpb = -1;
};
struct SampleItem {
  std::int64_t step = 0;
  std::string text;
};
struct NoteItem {
  std::string text;
  Verbosity from = Verbosity::kUsual;
};
struct Summary {};
struct Sync {};
using Item =
    std::variant<TrainItem, PaceItem, UpdateSizes, EvalItem, SampleItem, NoteItem, Summary, Sync>;

std::string skipped_text(const MetricsRecord& record) {
  return fmt::format("{} of {} updates skipped", record.step + 1 - record.updates, record.step + 1);
}

std::string nonfinite_text(const MetricsRecord& record, const std::string& bad_number) {
  std::string what = std::isfinite(record.loss) ? "" : "the loss";
  if (!bad_number.empty()) what += (what.empty() ? "" : ", and ") + bad_number;
  if (what.empty()) what = fmt::format("the square of gradient norm {:.3g}", record.grad_norm);
  return fmt::format("step {}: not finite: {}; weights are unchanged, {}", record.step, what,
                     skipped_text(record));
}

std::string outlier_text(const MetricsRecord& record) {
  return fmt::format(
      "step {}: outlier: loss {:.4f} is {:.1f} standard deviations above its mean, gradient norm "
      "{:.3g} is {:.1f}{}",
      record.step, record.loss, record.loss_deviations, record.grad_norm, record.norm_deviations,
      record.committed != 0 ? "" : "; not committed, " + skipped_text(record));
}

FileDescriptor open_log_file(const std::filesystem::path& file) {
  if (file.empty()) return FileDescriptor();
  FileDescriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!out)
    throw WriteError(fmt::format("cannot write {}: {}", file.string(), system_error_text(errno)));
  return out;
}

double seconds_of(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// Score of an evaluation: lower is better, non-finite is worst.
double score_of(const EvalItem& item) {
  const double score = item.bpb < 0 ? item.loss : item.bpb;
  return std::isfinite(score) ? score : std::numeric_limits<double>::infinity();
}
std::string score_text(const EvalItem& item) {
  return item.bpb < 0 ? fmt::format("loss {:.4f}", item.loss)
                      : fmt::format("{:.4f} bits/byte", item.bpb);
}

}  // namespace

class Logger::Impl {
 public:
  explicit Impl(const LoggerOptions& options)
      : options_(options),
        log_file_(open_log_file(options.log)),
        terminal_(options.terminal),
        log_(log_file_.number()),
        alarms_(options.max_waiting),
        queue_(kQueued) {
    if (!options.metrics.empty()) {
      drop_records_from(options.metrics, options.first_step);
      metrics_ = {options.metrics, AppendOnlyFile::Past::kWholeLines};
    }
    thread_ = start_thread([this] { work(); });
  }

  void submit(Item item) {
    {
      std::unique_lock lock(mutex_);
      MUO_CHECK(thread_.joinable(), "the logger is closed");
      throw_if_failed();
      while (count_ == queue_.size()) {
        is_slow_ = true;
        const std::uint64_t seen = done_;
        const RankProgress::Scope waiting(Activity::kFiles);  // a heartbeat per line
        written_.wait(lock, [&] { return done_ != seen; });
        throw_if_failed();
      }
      put(std::move(item));
    }
    condition_.notify_one();
  }

  bool flush(std::chrono::seconds patience) {
    std::unique_lock lock(mutex_);
    if (!stop_) {
      if (!written_.wait_for(lock, patience, [&] { return count_ < queue_.size(); })) return false;
      put(Sync{});
      condition_.notify_one();
    }
    const std::uint64_t last = submitted_;
    return written_.wait_for(lock, patience, [&] { return done_ >= last; }) && error_.empty();
  }

  void busy(const char* what) {
    busy_since_ = std::chrono::steady_clock::now();
    busy_ = what;
  }

  void close() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      ++submitted_;  // for the final Sync
    }
    condition_.notify_one();
    thread_.join();
    terminal_.close();
    throw_if_failed();
  }

 private:
  void throw_if_failed() const {
    if (!error_.empty()) throw WriteError(error_);
  }
  void fail(const WriteError& error) {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = error.what();
  }
  void put(Item item) {
    queue_[(begin_ + count_++) % queue_.size()] = std::move(item);
    ++submitted_;
  }

  void work() {
    for (bool ends = false; !ends;) {
      Item item = Sync{};  // the final item
      {
        std::unique_lock lock(mutex_);
        while (!condition_.wait_for(lock, kSecond, [&] { return count_ > 0 || stop_; })) {
          lock.unlock();
          show_busy();
          lock.lock();
        }
        ends = count_ == 0;
        if (!ends) {
          item = std::move(queue_[begin_]);
          begin_ = (begin_ + 1) % queue_.size();
          --count_;
        }
      }
      if (std::exchange(busy_shown_, false)) terminal_.clear();
      std::visit([this](const auto& what) { show(what); }, item);
      bool is_slow = false;
      {
        const std::lock_guard lock(mutex_);
        ++done_;
        is_slow = std::exchange(is_slow_, false);
      }
      written_.notify_all();
      if (is_slow && !std::exchange(slow_warned_, true))
        say(fmt::format(
                "warning: training waits for slow writes to {}: --log-every N writes fewer lines",
                options_.metrics.string()),
            Verbosity::kQuiet);
    }
  }

  [[nodiscard]] bool is_last(std::int64_t step) const { return step + 1 == options_.iterations; }
  // True if the step has a record in metrics.jsonl.
  [[nodiscard]] bool is_due(std::int64_t step) const {
    return step % options_.log_every == 0 || is_last(step);
  }

  void show(const TrainItem& item) {
    const MetricsRecord& record = item.record;
    const auto tokens = static_cast<double>(options_.tokens.of_step(record.step));
    if (std::exchange(step_tokens_, tokens) != tokens) {  // its steps take another time
      recent_ms_ = {};
      alarms_.forget_speed();
    }
    const double tokens_per_s = tokens * 1000 / item.step_ms;
    const StepSpeed speed{.step_ms = item.step_ms,
                          .tokens_per_s = tokens_per_s,
                          .mfu = mfu_at(tokens_per_s),
                          .power = power_of(item.step_ms)};
    const bool last = is_last(record.step);
    const bool odd = record.verdict != Verdict::kOrdinary;
    if (is_due(record.step) || odd) {
      show_events([&](EventLog& events) { events.train(record, speed); });
      append(train_line(record, options_.tokens.before(record.step + 1), speed, item.bad_number));
    }
    ++steps_;
    tokens_ += tokens;
    seconds_ += item.step_ms / 1000;
    const bool finite = record.verdict != Verdict::kNotFinite;
    if (!finite && !skipping_) say(nonfinite_text(record, item.bad_number), Verbosity::kQuiet);
    if (finite && skipping_)
      say(fmt::format("step {}: finite again; {}", record.step, skipped_text(record)),
          Verbosity::kQuiet);
    skipping_ = !finite;
    const std::string outlier =
        record.verdict == Verdict::kOutlier ? outlier_text(record) : std::string();
    if (options_.alarms)
      watch({.step = record.step,
             .ms = item.step_ms,
             .waited_ms = item.waited_ms,
             .outlier = outlier,
             .memory = {}});
    else if (!outlier.empty())
      say(outlier, Verbosity::kQuiet);
    recent_ms_.add(item.step_ms);
    TrainingProgress progress{.done = record.step + 1,
                              .iterations = options_.iterations,
                              .time_budget = options_.time_budget,
                              .seconds = options_.seconds_before + seconds_,
                              .loss = record.loss,
                              .bytes_per_token = options_.bytes_per_token,
                              .tokens_per_s = tokens * 1000 / recent_ms_.mean(),
                              .step_ms = recent_ms_.mean() * options_.tokens.relative_after(
                                                                 record.step, options_.iterations)};
    const std::string plain = progress_text(progress);
    log_.progress(plain, last);
    if (options_.verbosity == Verbosity::kQuiet) return;
    if (!terminal_.is_live()) return terminal_.progress(plain, last);
    progress.mfu = mfu_at(progress.tokens_per_s);
    progress.memory = memory_now();
    terminal_.progress(status_line(progress, terminal_.columns(), terminal_.unicode()), last);
  }

  void show(const PaceItem& item) { append(pace_line(item.pace, item.seconds)); }

  void show(const UpdateSizes& sizes) {
    if (is_due(sizes.step)) {
      show_events([&](EventLog& events) { events.update(sizes); });
      append(update_line(sizes));
    }
    if (!sizes.matrices.empty()) append(matrices_line(sizes));
    if (options_.alarms && sizes.step >= options_.warmup_steps)
      report(sizes.step, alarms_.after_update(sizes, seconds_of(std::chrono::steady_clock::now())));
  }

  void show(const EvalItem& item) {
    if (options_.power != nullptr) options_.power->take();  // excludes the evaluation
    const auto bpb = item.bpb < 0 ? std::nullopt : std::optional(item.bpb);
    show_events([&](EventLog& events) { events.eval(item.step, item.loss, bpb); });
    append(eval_line(item.step, item.loss, bpb));
    std::string text = fmt::format("step {}: held-out loss {:.4f}", item.step, item.loss);
    if (bpb) text += fmt::format(", {:.4f} bits/byte", *bpb);
    say(text);
    last_ = item;
    if (!best_ || score_of(item) < score_of(*best_)) best_ = item;
  }

  void show(const SampleItem& item) {
    show_events([&](EventLog& events) { events.sample(item.step, item.text); });
    append(sample_line(item.step, item.text));
    std::string text = fmt::format("step {}: sample", item.step);
    for (std::size_t at = 0; at <= item.text.size();) {
      const std::size_t end = std::min(item.text.find('\n', at), item.text.size());
      text += "\n  | ";
      text += std::string_view(item.text).substr(at, end - at);
      at = end + 1;
    }
    say(text);
  }

  void show(const NoteItem& item) {
    say(item.text, item.text.starts_with("warning:") ? Verbosity::kQuiet : item.from);
  }

  void show(Sync /*item*/) {
    if (!metrics_) return;
    try {
      metrics_.sync();
    } catch (const WriteError& error) {
      fail(error);
    }
  }

  void show(Summary /*item*/) {
    if (terminal_.is_live()) terminal_.clear();  // the summary replaces it
    if (steps_ == 0) return;
    std::string text =
        fmt::format("trained {} step{}, {} tokens, {:.3g} FLOPs in {}: {} tokens/s", steps_,
                    steps_ == 1 ? "" : "s", count_text(tokens_), tokens_ * options_.flops_per_token,
                    seconds_ < 10 ? fmt::format("{:.2f}s", seconds_) : duration_text(seconds_),
                    count_text(tokens_ / seconds_));
    if (const auto mfu = mfu_at(tokens_ / seconds_))
      text += fmt::format(", MFU {:.1f} %", 100 * *mfu);
    say(text, Verbosity::kQuiet);
    if (const std::string suppressed = alarms_.suppressed(); !suppressed.empty())
      say("suppressed alarms: " + suppressed, Verbosity::kQuiet);
    if (!last_) return;
    text = fmt::format("held out: {} at step {}", score_text(*last_), last_->step);
    if (best_->step != last_->step)
      text += fmt::format("; best {} at step {}", score_text(*best_), best_->step);
    say(text, Verbosity::kQuiet);
  }

  void watch(Alarms::Step step) {
    const auto now = std::chrono::steady_clock::now();
    if (now - anonymous_seen_ >= std::chrono::seconds(10)) {
      anonymous_seen_ = now;
      step.memory = anonymous_memory();
    }
    report(step.step, alarms_.after_step(step, seconds_of(now)));
  }

  void report(std::int64_t step, const std::vector<Alarm>& alarms) {
    for (const Alarm& alarm : alarms) {
      append(alarm_line(step, alarm.kind, alarm.text));
      say(alarm.text, Verbosity::kQuiet);
    }
  }

  void show_busy() {
    const char* const what = busy_;
    if (what == nullptr || options_.verbosity == Verbosity::kQuiet || !terminal_.is_live()) return;
    const auto since = std::chrono::steady_clock::now() - busy_since_.load();
    if (since < kSecond) return;
    busy_shown_ = true;
    terminal_.progress(
        fmt::format("{} ({})", what, duration_text(std::chrono::duration<double>(since).count())),
        true);
  }

  void say(const std::string& text, Verbosity from = Verbosity::kUsual) {
    log_.lines(text);
    if (from <= options_.verbosity) terminal_.lines(text);
  }

  // Bytes of the devices' memory, or of the process on the host; measured at most once a second.
  [[nodiscard]] std::int64_t memory_now() {
    if (options_.device_memory > 0) return options_.device_memory;
    const auto now = std::chrono::steady_clock::now();
    if (now - memory_seen_ < std::chrono::seconds(1)) return memory_;
    memory_seen_ = now;
    return memory_ = resident_memory().value_or(0);
  }

  [[nodiscard]] std::optional<StepSpeed::Power> power_of(double step_ms) {
    if (options_.power == nullptr) return std::nullopt;
    if (steps_ == 0) options_.power->take();  // excludes the start
    const std::optional<PowerUse> use = options_.power->recent(options_.power_every);
    if (!use) return std::nullopt;
    return StepSpeed::Power{.watts = use->watts(),
                            .clock_mhz = use->clock_mhz,
                            .joules = use->watts() * options_.devices * step_ms / 1000};
  }

  [[nodiscard]] std::optional<double> mfu_at(double tokens_per_s) const {
    if (options_.peak_flops <= 0) return std::nullopt;
    return options_.flops_per_token * tokens_per_s / options_.peak_flops;
  }

  // Called before append(), so that TensorBoard lacks nothing that metrics.jsonl has if the process
  // is killed.
  template <class Call>
  void show_events(const Call& call) {
    if (!options_.events) return;
    try {
      call(*options_.events);
      events_fail_ = false;
    } catch (const Error& error) {
      if (!options_.events->may_fail()) {
        const std::lock_guard lock(mutex_);
        if (error_.empty()) error_ = error.what();
      } else if (!std::exchange(events_fail_, true)) {
        say(fmt::format(
                "warning: {}; TensorBoard's file lacks events until it can be written again; "
                "metrics.jsonl has them",
                error.what()),
            Verbosity::kQuiet);
      }
    }
  }

  void append(const std::string& line) {
    if (!metrics_) return;
    {
      const std::lock_guard lock(mutex_);
      if (!error_.empty()) return;
    }
    try {
      metrics_.append(line + '\n');
    } catch (const WriteError& error) {
      fail(error);
    }
  }

  const LoggerOptions options_;
  AppendOnlyFile metrics_;
  const FileDescriptor log_file_;
  // The members from here to slow_warned_ are used only by the logger's thread.
  Terminal terminal_, log_;
  std::optional<EvalItem> last_, best_;
  std::int64_t memory_ = 0;
  std::chrono::steady_clock::time_point memory_seen_ = {}, anonymous_seen_ = {};
  Alarms alarms_;
  RecentMean recent_ms_;
  double step_tokens_ = 0;
  std::int64_t steps_ = 0;
  double tokens_ = 0, seconds_ = 0;  // of those steps
  bool skipping_ = false, events_fail_ = false, busy_shown_ = false, slow_warned_ = false;

  std::atomic<const char*> busy_ = nullptr;
  std::atomic<std::chrono::steady_clock::time_point> busy_since_ = {};

  std::mutex mutex_;
  std::condition_variable condition_, written_;
  std::vector<Item> queue_;  // a ring: count_ items from begin_
  std::size_t begin_ = 0, count_ = 0;
  std::uint64_t submitted_ = 0, done_ = 0;  // numbers of submitted and finished items
  bool stop_ = false, is_slow_ = false;
  std::string error_;
  std::thread thread_;
};

Logger::Logger(const LoggerOptions& options) : impl_(std::make_unique<Impl>(options)) {}

Logger::~Logger() {
  try {
    impl_->close();
  } catch (const Error&) {  // NOLINT: a caller that needs the error calls close()
  }
}

void Logger::train(const MetricsRecord& record, double step_ms, std::string bad_number,
                   double waited_ms) {
  impl_->submit(TrainItem{record, step_ms, waited_ms, std::move(bad_number)});
}
void Logger::pace(const Pace& pace, double seconds) { impl_->submit(PaceItem{pace, seconds}); }
void Logger::update(UpdateSizes sizes) { impl_->submit(std::move(sizes)); }
void Logger::eval(std::int64_t step, double val_loss, double val_bpb) {
  impl_->submit(EvalItem{step, val_loss, val_bpb});
}
void Logger::note(std::string_view text, Verbosity from) {
  impl_->submit(NoteItem{std::string(text), from});
}
void Logger::sample(std::int64_t step, std::string_view text) {
  impl_->submit(SampleItem{step, std::string(text)});
}
void Logger::busy(const char* what) { impl_->busy(what); }
void Logger::summary() { impl_->submit(Summary{}); }
bool Logger::flush(std::chrono::seconds patience) { return impl_->flush(patience); }
void Logger::close() { impl_->close(); }

}  // namespace muo::trainer
