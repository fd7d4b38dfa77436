#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/metrics.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/options/options.h"
#include "trainer/run/run_config.h"
#include "trainer/train/event_file.h"
#include "trainer/train/event_messages.h"
#include "trainer/train/log_lines.h"
#include "trainer/train/update_sizes.h"

namespace muo::trainer {

// A run's TensorBoard log (docs/tensorboard.md): an event file in the run directory, written on the
// Logger's thread. Every call throws Error if the file cannot be written.
class EventLog {
 public:
  // `may_fail`: the Logger warns about a write error instead of ending the run.
  EventLog(const std::filesystem::path& directory, std::int64_t first_step, double bytes_per_token,
           bool may_fail);

  // Writes the options as HPARAMS and config.toml as text.
  void configuration(std::string_view config, const std::vector<Hparam>& hparams);
  void train(const MetricsRecord& record, const StepSpeed& speed);
  void update(const UpdateSizes& sizes);
  void eval(std::int64_t step, double val_loss, std::optional<double> val_bpb);
  void sample(std::int64_t step, std::string_view text);

  // Ends a trial of a sweep, after its Logger is closed.
  void end(TrialEnd how);

  [[nodiscard]] bool may_fail() const { return may_fail_; }

 private:
  EventFile file_;
  std::int64_t first_step_;
  double bytes_per_token_;  // 0: unknown, so bits per byte are not logged
  bool may_fail_;
};

// Opens the log of a run that starts or resumes at `first_step`; null with --tensorboard off. Call
// this after create_run_directory().
std::shared_ptr<EventLog> open_event_log(const RunDirectory& directory, const RunConfig& config,
                                         std::int64_t first_step);

// Names and values of the non-automatic options that determine what is trained: those in which
// trials can differ.
std::vector<Hparam> hparams_of(TrainOptions options);

}  // namespace muo::trainer
