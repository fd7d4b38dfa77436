#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

#include "app/checkpoint/checkpoint.h"
#include "app/options/options.h"
#include "data/token_data.h"
#include "model/gpt_config.h"

namespace muo {

// The fields of a model but for dtype, by name; document_token only where documents have one.
nlohmann::json model_fields(const GptConfig& config);
// What a checkpoint's `config` says: {"model": {GptConfig's fields}, "options": the text of the
// run's config.toml}.
std::string checkpoint_config(const GptConfig& config, const TrainOptions& options);
// What a checkpoint's `data` says: enough to notice that a run goes on with other data.
std::string data_identity(const Corpus& corpus);
// Whether what a checkpoint's `data` says is not so of a corpus. `part`: of the fields whose names
// begin so: "val_" for what is held out, "" for all.
bool differs_from_data(const Checkpoint& checkpoint, const Corpus& corpus,
                       std::string_view part = "");

// The model of a checkpoint, with the dtype it was trained in. Throws InputError naming the
// checkpoint for anything missing or impossible.
GptConfig checkpoint_model(const Checkpoint& checkpoint);
// How two models differ but for dtype, for people: "n_layer 4, not 6; n_embd 256, not 384". Empty:
// they do not.
std::string model_difference(const GptConfig& is, const GptConfig& wanted);
// A model's fields, but for dtype, for people.
std::string model_text(const GptConfig& model);
// The text of the config.toml of the run that wrote a checkpoint.
std::string checkpoint_options_text(const Checkpoint& checkpoint);
// The options of that run.
TrainOptions checkpoint_options(const Checkpoint& checkpoint);

}  // namespace muo
