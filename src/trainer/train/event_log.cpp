#include "trainer/train/event_log.h"

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "base/file_bytes.h"
#include "base/terminal.h"
#include "trainer/options/option_table.h"
#include "trainer/train/resume.h"

namespace muo::trainer {
namespace {

// A run resumed at `step` does not repeat that step's evaluation if its log already has it, but
// readers drop it when they see the run's start event, so it is written again.
void repeat_evaluation(EventLog& log, const std::filesystem::path& metrics, std::int64_t step) {
  for (const LoggedEvaluation& logged : logged_evaluations(metrics))
    if (logged.step == step)
      log.eval(step, logged.result.loss,
               logged.result.bpb < 0 ? std::nullopt : std::optional(logged.result.bpb));
}

HparamValue hparam_value(const OptionRow& row) {
  if (const auto* const* flag = std::get_if<bool*>(&row.field)) return **flag;
  if (const auto* const* flag = std::get_if<std::optional<bool>*>(&row.field); flag && **flag)
    return ***flag;
  std::string text = option_text(row);
  if (const std::optional<double> number = real_number(text)) return *number;
  return text;
}

}  // namespace

EventLog::EventLog(const std::filesystem::path& directory, std::int64_t first_step,
                   double bytes_per_token, bool may_fail)
    : file_(directory),
      first_step_(first_step),
      bytes_per_token_(bytes_per_token),
      may_fail_(may_fail) {
  file_.write(session_start_event({wall_time(), first_step}));
}

void EventLog::configuration(std::string_view config, const std::vector<Hparam>& hparams) {
  const EventTime now{wall_time(), first_step_};
  file_.write(text_event(now, "config", literal_markdown(config)));
  file_.write(hparams_start_event(now, hparams));
}

void EventLog::train(const MetricsRecord& record, const StepSpeed& speed) {
  std::vector<Scalar> scalars = {{"train/loss", record.loss},
                                 {"train/lr_multiplier", record.lr_multiplier},
                                 {"train/muon_momentum", record.muon_momentum},
                                 {"train/muon_weight_decay", record.muon_weight_decay},
                                 {"train/grad_norm", record.grad_norm},
                                 {"train/step_ms", speed.step_ms},
                                 {"train/tokens_per_s", speed.tokens_per_s}};
  if (bytes_per_token_ > 0)
    scalars.push_back({"train/bpb", record.loss / std::log(2.0) / bytes_per_token_});
  if (speed.mfu) scalars.push_back({"train/mfu", *speed.mfu});
  if (speed.power) {
    scalars.push_back({"train/watts", speed.power->watts});
    scalars.push_back({"train/clock_mhz", speed.power->clock_mhz});
    scalars.push_back({"train/joules", speed.power->joules});
  }
  file_.write(scalars_event({wall_time(), record.step}, scalars));
}

void EventLog::update(const UpdateSizes& sizes) {
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [group, is_scalars, size] : sizes.groups) {
    values.emplace_back(concat("update_rms/", group), size.rms);
    if (size.ratio) values.emplace_back(concat("update_ratio/", group), *size.ratio);
    if (size.u_rms) values.emplace_back(concat("update_u_rms/", group), *size.u_rms);
  }
  std::vector<Scalar> scalars;
  scalars.reserve(values.size());
  for (const auto& [tag, value] : values)
    scalars.push_back({tag, value});
  file_.write(scalars_event({wall_time(), sizes.step}, scalars));
}

void EventLog::eval(std::int64_t step, double val_loss, std::optional<double> val_bpb) {
  std::vector<Scalar> scalars = {{"eval/val_loss", val_loss}};
  if (val_bpb) scalars.push_back({kValBpbTag, *val_bpb});
  file_.write(scalars_event({wall_time(), step}, scalars));
}

void EventLog::sample(std::int64_t step, std::string_view text) {
  file_.write(text_event({wall_time(), step}, "sample", literal_markdown(printable(text))));
}

void EventLog::end(TrialEnd how) { file_.write(hparams_end_event({wall_time(), 0}, how)); }

std::shared_ptr<EventLog> open_event_log(const RunDirectory& directory, const RunConfig& config,
                                         std::int64_t first_step) {
  if (!config.options.run.tensorboard) return nullptr;
  auto log = std::make_shared<EventLog>(directory.root, first_step, config.bytes_per_token,
                                        config.options.save.on_error == OnSaveError::kContinue);
  log->configuration(FileBytes(directory.config()).text(), hparams_of(config.resolved()));
  if (first_step > 0) repeat_evaluation(*log, directory.metrics(), first_step);
  return log;
}

std::vector<Hparam> hparams_of(TrainOptions options) {
  std::vector<Hparam> out;
  for (const OptionRow& row : option_table(options))
    if ((row.trains || row.group == kModelGroup) && option_text(row) != "auto")
      out.emplace_back(row.name, hparam_value(row));
  return out;
}

}  // namespace muo::trainer
