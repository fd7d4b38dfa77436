#include "app/train/logger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "app/train/metrics_line.h"
#include "base/check.h"
#include "base/signals_blocked.h"
#include "base/terminal.h"

namespace muo {
namespace {

constexpr std::size_t kQueued = 4096;               // records: minutes of the shortest steps
constexpr auto kTimeout = std::chrono::seconds(2);  // with a disk, when the program ends

struct TrainItem {
  MetricsRecord record;
  double step_ms = 0;
  std::string bad_number;
};
struct EvalItem {
  std::int64_t step = 0;
  double loss = 0;
  double bpb = -1;
};
struct TextItem {
  std::string text;
};
struct SummaryItem {};
using Item = std::variant<TrainItem, EvalItem, TextItem, SummaryItem>;

// What a run that starts at `step` will write itself. Its checkpoint was evaluated before, if at
// all.
bool comes_again(const nlohmann::json& record, std::int64_t step) {
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
    return true;  // a line that an earlier attempt could not finish
  const auto at = record["step"].get<std::int64_t>();
  const bool evaluation = record.value("kind", nlohmann::json()) == "eval";
  return evaluation && step > 0 ? at > step : at >= step;
}

// A resumed run repeats the steps after its checkpoint: what an earlier attempt wrote of them goes.
void drop_records_from(const std::filesystem::path& file, std::int64_t step) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return;  // a pipe, or /dev/null, has no past
  std::ifstream in(file);
  std::string kept;
  bool dropped = false;
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    const bool keep = !comes_again(record, step) && !in.eof();
    if (keep) kept += line + '\n';
    dropped = dropped || !keep;
  }
  if (!dropped) return;
  const std::filesystem::path temporary = file.string() + ".tmp";
  std::ofstream out(temporary, std::ios::trunc);
  out << kept;
  out.close();
  if (!out)
    throw Error(fmt::format("cannot write {}: {}", temporary.string(),
                            std::generic_category().message(errno)));
  std::filesystem::rename(temporary, file);
}

std::string skipped_text(const MetricsRecord& record) {
  return fmt::format("{} of {} updates skipped", record.step + 1 - record.updates, record.step + 1);
}

std::string nonfinite_text(const MetricsRecord& record, const std::string& bad_number) {
  std::string what = std::isfinite(record.loss) ? "" : "the loss";
  if (!bad_number.empty()) what += (what.empty() ? "" : ", and ") + bad_number;
  if (what.empty()) what = fmt::format("the square of gradient norm {:.3g}", record.grad_norm);
  return fmt::format("step {}: not finite: {}; weights stay as they are, {}", record.step, what,
                     skipped_text(record));
}

std::string outlier_text(const MetricsRecord& record) {
  return fmt::format(
      "step {}: outlier: loss {:.4f} is {:.1f} standard deviations above its mean, gradient norm "
      "{:.3g} is {:.1f}{}",
      record.step, record.loss, record.loss_deviations, record.grad_norm, record.norm_deviations,
      record.committed != 0 ? "" : "; not committed, " + skipped_text(record));
}

}  // namespace

class Logger::Impl {
 public:
  explicit Impl(const LoggerOptions& options)
      : options_(options), terminal_(options.terminal), queue_(kQueued) {
    if (!options.metrics.empty()) {
      drop_records_from(options.metrics, options.first_step);
      fd_ = open(options.metrics.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (fd_ < 0)
        throw Error(fmt::format("cannot open {}: {}", options.metrics.string(),
                                std::generic_category().message(errno)));
    }
    const SignalsBlocked in_the_thread;
    thread_ = std::thread([this] { work(); });
  }

  void submit(Item item) {
    {
      const std::lock_guard lock(mutex_);
      MUO_CHECK(thread_.joinable(), "the logger is closed");
      throw_if_failed();
      if (count_ == queue_.size())
        throw Error(fmt::format("{} records wait for {}: the disk does not keep up", count_,
                                options_.metrics.string()));
      queue_[(begin_ + count_++) % queue_.size()] = std::move(item);
    }
    condition_.notify_one();
  }

  void flush() {
    std::unique_lock lock(mutex_);
    static_cast<void>(
        written_.wait_for(lock, kTimeout, [this] { return count_ == 0 && !writing_; }));
  }

  void close() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    condition_.notify_one();
    thread_.join();
    terminal_.close();
    if (fd_ >= 0 && ::close(fd_) != 0 && error_.empty()) fail(errno);
    throw_if_failed();
  }

 private:
  void throw_if_failed() const {
    if (!error_.empty()) throw Error(error_);
  }
  void fail(int code) {
    error_ = fmt::format("cannot write {}: {}", options_.metrics.string(),
                         std::generic_category().message(code));
  }

  void work() {
    for (;;) {
      Item item;
      {
        std::unique_lock lock(mutex_);
        condition_.wait(lock, [&] { return count_ > 0 || stop_; });
        if (count_ == 0) return;
        item = std::move(queue_[begin_]);
        begin_ = (begin_ + 1) % queue_.size();
        --count_;
        writing_ = true;
      }
      std::visit([this](const auto& what) { show(what); }, item);
      {
        const std::lock_guard lock(mutex_);
        writing_ = false;
      }
      written_.notify_all();
    }
  }

  void show(const TrainItem& item) {
    const MetricsRecord& record = item.record;
    const double tokens_per_s = static_cast<double>(options_.tokens_per_step) * 1000 / item.step_ms;
    const bool last = record.step + 1 == options_.iterations;
    const bool odd = record.verdict != Verdict::kOrdinary;
    if (record.step % options_.log_every == 0 || last || odd) {
      append(train_line(record, (record.step + 1) * options_.tokens_per_step, item.step_ms,
                        tokens_per_s, mfu_at(tokens_per_s), item.bad_number));
    }
    ++steps_;
    seconds_ += item.step_ms / 1000;
    const bool finite = record.verdict != Verdict::kNotFinite;
    if (!finite && !skipping_) terminal_.lines(nonfinite_text(record, item.bad_number));
    if (finite && skipping_)
      terminal_.lines(fmt::format("step {}: finite again; {}", record.step, skipped_text(record)));
    skipping_ = !finite;
    if (record.verdict == Verdict::kOutlier) terminal_.lines(outlier_text(record));
    // Over about ten steps; the correction makes the first ones count fully.
    constexpr double kKeep = 0.9;
    weight_ = kKeep * weight_ + (1 - kKeep);
    mean_ms_ += (1 - kKeep) / weight_ * (item.step_ms - mean_ms_);
    const Progress progress{
        .done = record.step + 1,
        .iterations = options_.iterations,
        .loss = record.loss,
        .bytes_per_token = options_.bytes_per_token,
        .tokens_per_s = static_cast<double>(options_.tokens_per_step) * 1000 / mean_ms_,
        .step_ms = mean_ms_};
    terminal_.progress(progress_text(progress), last);
  }

  void show(const EvalItem& item) {
    const auto bpb = item.bpb < 0 ? std::nullopt : std::optional(item.bpb);
    append(eval_line(item.step, item.loss, bpb));
    std::string text = fmt::format("step {}: held-out loss {:.4f}", item.step, item.loss);
    if (bpb) text += fmt::format(", {:.4f} bits/byte", *bpb);
    terminal_.lines(text);
  }

  void show(const TextItem& item) { terminal_.lines(item.text); }

  void show(const SummaryItem& /*item*/) {
    if (steps_ == 0) return;
    const double tokens =
        static_cast<double>(steps_) * static_cast<double>(options_.tokens_per_step);
    std::string text =
        fmt::format("trained {} steps, {} tokens, {:.3g} FLOPs in {}: {} tokens/s", steps_,
                    count_text(tokens), tokens * options_.flops_per_token,
                    seconds_ < 10 ? fmt::format("{:.2f}s", seconds_) : duration_text(seconds_),
                    count_text(tokens / seconds_));
    if (const auto mfu = mfu_at(tokens / seconds_))
      text += fmt::format(", MFU {:.1f} %", 100 * *mfu);
    terminal_.lines(text);
  }

  [[nodiscard]] std::optional<double> mfu_at(double tokens_per_s) const {
    if (options_.peak_flops <= 0) return std::nullopt;
    return options_.flops_per_token * tokens_per_s / options_.peak_flops;
  }

  // A line is one write: whoever reads along, or after a crash, sees whole lines.
  void append(std::string line) {
    if (fd_ < 0) return;
    {
      const std::lock_guard lock(mutex_);
      if (!error_.empty()) return;
    }
    line += '\n';
    std::string_view rest = line;
    while (!rest.empty()) {
      const ssize_t written = ::write(fd_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        const int code = errno;
        const std::lock_guard lock(mutex_);
        return fail(code);
      }
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  const LoggerOptions options_;
  int fd_ = -1;
  // Of the logger's thread.
  Terminal terminal_;
  double mean_ms_ = 0, weight_ = 0;
  std::int64_t steps_ = 0;
  double seconds_ = 0;  // of those steps
  bool skipping_ = false;

  std::mutex mutex_;
  std::condition_variable condition_, written_;
  std::vector<Item> queue_;  // a ring: count_ items from begin_
  std::size_t begin_ = 0, count_ = 0;
  bool stop_ = false, writing_ = false;
  std::string error_;
  std::thread thread_;
};

Logger::Logger(const LoggerOptions& options) : impl_(std::make_unique<Impl>(options)) {}

Logger::~Logger() {
  try {
    impl_->close();
  } catch (const Error&) {  // NOLINT: whoever wanted to know has called close()
  }
}

void Logger::train(const MetricsRecord& record, double step_ms, std::string bad_number) {
  impl_->submit(TrainItem{record, step_ms, std::move(bad_number)});
}
void Logger::eval(std::int64_t step, double val_loss, double val_bpb) {
  impl_->submit(EvalItem{step, val_loss, val_bpb});
}
void Logger::note(std::string_view text) { impl_->submit(TextItem{std::string(text)}); }
void Logger::sample(std::int64_t step, std::string_view text) {
  impl_->submit(TextItem{fmt::format("step {}: sample\n{}", step, text)});
}
void Logger::summary() { impl_->submit(SummaryItem{}); }
void Logger::flush() { impl_->flush(); }
void Logger::close() { impl_->close(); }

}  // namespace muo
