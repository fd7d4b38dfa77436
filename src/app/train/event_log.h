#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "app/checkpoint/run_directory.h"
#include "app/options/options.h"
#include "app/run/run_config.h"
#include "app/train/event_file.h"
#include "app/train/event_messages.h"
#include "app/train/update_sizes.h"
#include "kernels/metrics.h"

namespace muo::app {

// What a run shows in TensorBoard (docs/tensorboard.md): an event file in its directory, which the
// Logger's thread writes. Every call throws Error if it cannot.
class EventLog {
 public:
  // `may_fail`: what cannot be written is a warning of the Logger's, not the end of the run.
  EventLog(const std::filesystem::path& directory, std::int64_t first_step, double bytes_per_token,
           bool may_fail);

  // As options of HPARAMS, and as text.
  void configuration(std::string_view config, const std::vector<Hparam>& hparams);
  void train(const MetricsRecord& record, double step_ms, double tokens_per_s,
             std::optional<double> mfu);
  void update(const UpdateSizes& sizes);
  void eval(std::int64_t step, double val_loss, std::optional<double> val_bpb);
  void sample(std::int64_t step, std::string_view text);

  // Of a trial of a sweep, once its Logger is closed.
  void end(TrialEnd how);

  [[nodiscard]] bool may_fail() const { return may_fail_; }

 private:
  EventFile file_;
  std::int64_t first_step_;
  double bytes_per_token_;  // 0: unknown, no bits per byte
  bool may_fail_;
};

// The one of a run that begins or goes on at `first_step`; null with --tensorboard off. After
// create_run_directory.
std::shared_ptr<EventLog> open_event_log(const RunDirectory& directory, const RunConfig& config,
                                         std::int64_t first_step);

// The options that say what is trained, by name, but for those that are automatic: what trials can
// differ in.
std::vector<Hparam> hparams_of(TrainOptions options);

}  // namespace muo::app
