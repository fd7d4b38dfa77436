#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

#include "data/token_data.h"
#include "model/gpt_config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/options/options.h"

namespace muo::trainer {

// Returns the fields of a model by name, except dtype; document_token only if the model has one.
nlohmann::json model_fields(const model::GptConfig& config);
// Returns a checkpoint's `config`: {"model": {fields of GptConfig}, "options": the text of the
// run's config.toml}.
std::string checkpoint_config(const model::GptConfig& config, const TrainOptions& options);
// Returns a checkpoint's `data`, which identifies the training data, so that resuming with other
// data is detected.
std::string data_identity(const data::Corpus& corpus);
// True if a checkpoint's `data` differs from the identity of a corpus in the fields whose names
// begin with `part`: "val_" for held-out data, "" for all.
bool differs_from_data(const Checkpoint& checkpoint, const data::Corpus& corpus,
                       std::string_view part = "");

// Returns the model of a checkpoint, with the dtype in which it was trained. Throws
// InputError("WHERE: reason") if a field is missing, invalid, or outside the options' range.
model::GptConfig checkpoint_model(const CheckpointInfo& info, const std::string& where);
// Describes how two models differ, ignoring dtype: "n_layer 4, not 6; n_embd 256, not 384". Empty
// if they are equal.
std::string model_difference(const model::GptConfig& is, const model::GptConfig& wanted);
// Describes a model's fields, except dtype.
std::string model_text(const model::GptConfig& model);
// Returns the config.toml of the run that wrote a checkpoint. Throws as checkpoint_model() does.
std::string checkpoint_options_text(const CheckpointInfo& info, const std::string& where);
// Returns the options of that run. Throws as checkpoint_model() does.
TrainOptions checkpoint_options(const CheckpointInfo& info, const std::string& where);

// The same for an open checkpoint; `where` is its manifest.
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

}  // namespace muo::trainer
