#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

#include "app/checkpoint/checkpoint.h"
#include "app/options/options.h"
#include "data/token_data.h"
#include "model/gpt_config.h"

namespace muo::app {

// The fields of a model but for dtype, by name; document_token only where documents have one.
nlohmann::json model_fields(const model::GptConfig& config);
// What a checkpoint's `config` says: {"model": {GptConfig's fields}, "options": the text of the
// run's config.toml}.
std::string checkpoint_config(const model::GptConfig& config, const TrainOptions& options);
// What a checkpoint's `data` says: enough to notice that a run goes on with other data.
std::string data_identity(const data::Corpus& corpus);
// Whether what a checkpoint's `data` says is not so of a corpus. `part`: of the fields whose names
// begin so: "val_" for what is held out, "" for all.
bool differs_from_data(const Checkpoint& checkpoint, const data::Corpus& corpus,
                       std::string_view part = "");

// The model of a checkpoint, with the dtype it was trained in. Throws InputError, "WHERE: reason",
// for anything missing, impossible, or beyond what options take.
model::GptConfig checkpoint_model(const CheckpointInfo& info, const std::string& where);
// How two models differ but for dtype, for people: "n_layer 4, not 6; n_embd 256, not 384". Empty:
// they do not.
std::string model_difference(const model::GptConfig& is, const model::GptConfig& wanted);
// A model's fields, but for dtype, for people.
std::string model_text(const model::GptConfig& model);
// The text of the config.toml of the run that wrote a checkpoint. Throws as checkpoint_model().
std::string checkpoint_options_text(const CheckpointInfo& info, const std::string& where);
// The options of that run.
TrainOptions checkpoint_options(const CheckpointInfo& info, const std::string& where);

// The same of a checkpoint, whose manifest is named.
inline std::string manifest_of(const Checkpoint& checkpoint) {
  return (checkpoint.path() / kManifestName).string();
}
inline model::GptConfig checkpoint_model(const Checkpoint& checkpoint) {
  return checkpoint_model(checkpoint.info(), manifest_of(checkpoint));
}
inline std::string checkpoint_options_text(const Checkpoint& checkpoint) {
  return checkpoint_options_text(checkpoint.info(), manifest_of(checkpoint));
}
inline TrainOptions checkpoint_options(const Checkpoint& checkpoint) {
  return checkpoint_options(checkpoint.info(), manifest_of(checkpoint));
}

}  // namespace muo::app
