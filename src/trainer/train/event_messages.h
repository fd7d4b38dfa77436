#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace muo::trainer {

// Serialized messages of TensorBoard's event files, in the wire format of protocol buffers: Event
// (tensorboard/compat/proto: event.proto, summary.proto, tensor.proto) and the messages of the
// plug-ins text and hparams (plugin_data.proto). Texts are UTF-8.

// An event framed as a TFRecord: length, checksum of the length, event, checksum of the event. An
// event file is a sequence of these.
std::string tf_record(std::string_view event);

struct EventTime {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
};

// The first event of every file.
std::string file_version_event(double wall_time);
// Marks that a run starts or resumes at this step: readers drop this step and later ones from
// earlier files of the directory.
std::string session_start_event(EventTime at);

struct Scalar {
  std::string_view tag;
  double value = 0;  // stored as float; need not be finite
};
std::string scalars_event(EventTime at, std::span<const Scalar> scalars);
// Shown as Markdown.
std::string text_event(EventTime at, std::string_view tag, std::string_view text);
// Markdown that shows these lines verbatim.
std::string literal_markdown(std::string_view lines);

// Messages of the HPARAMS dashboard. A trial is a directory with an event file that contains
// hparams_start_event, the trial's metrics as scalars and, when the trial has ended,
// hparams_end_event. An event file in a parent directory may contain hparams_experiment_event,
// which selects what is shown; without it, TensorBoard shows all hyper-parameters that it finds and
// asks the user for the metrics.
using HparamValue = std::variant<double, bool, std::string>;
using Hparam = std::pair<std::string, HparamValue>;  // name, value

// `hparams`: names, and values of the same types as in the trials. `metrics`: tags of scalars, for
// example kValBpbTag.
std::string hparams_experiment_event(EventTime at, std::span<const Hparam> hparams,
                                     std::span<const std::string_view> metrics);
// `group`: trials of the same group are shown as one; if empty, the trial is a group of its own.
std::string hparams_start_event(EventTime at, std::span<const Hparam> hparams,
                                std::string_view group = {});
enum class TrialEnd : std::uint8_t { kSuccess = 1, kFailure = 2 };  // Status of api.proto
std::string hparams_end_event(EventTime at, TrialEnd end);

inline constexpr std::string_view kValBpbTag = "eval/val_bpb";

}  // namespace muo::trainer
