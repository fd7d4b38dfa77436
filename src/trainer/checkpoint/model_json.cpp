#include "trainer/checkpoint/model_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <type_traits>

#include "trainer/options/config_file.h"
#include "trainer/options/model_options.h"
#include "trainer/options/option_table.h"

namespace muo::trainer {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw InputError(concat(where, ": ", why, ": was it written by another version of muograph?"));
}

// Writes a float with the fewest digits that read back as the same float: 1.2, not
// 1.2000000476837158.
template <class Value>
json json_of(const Value& value) {
  if constexpr (std::is_same_v<Value, float>)
    return json::parse(fmt::format("{}", value));
  else
    return value;
}

json config_of(const CheckpointInfo& info) { return json::parse(info.config); }

}  // namespace

json model_fields(const model::GptConfig& config) {
  json model = json::object();
  for_each_gpt_field(config, [&](const GptField& field, const auto& value) {
    model[std::string(field.name)] = json_of(value);
  });
  if (config.document_token >= 0) model["document_token"] = config.document_token;
  return model;
}

std::string checkpoint_config(const model::GptConfig& config, const TrainOptions& options) {
  json model = model_fields(config);
  model["dtype"] = name_of(config.dtype);
  TrainOptions copy = options;  // the table needs mutable fields
  return json{{"model", model}, {"options", config_text(option_table(copy))}}.dump();
}

std::string data_identity(const data::Corpus& corpus) {
  json identity = {{"train_tokens", corpus.train->size()},
                   {"train_fingerprint", corpus.train_fingerprint},
                   {"val_tokens", corpus.val->size()},
                   {"val_fingerprint", corpus.val_fingerprint},
                   {"vocab_size", corpus.vocab_size}};
  // The first checkpoints with the byte tokenizer, or of shards without a tokenizer, lack this
  // field.
  if (corpus.tokenizer && corpus.tokenizer->fingerprint() != "byte")
    identity["tokenizer"] = corpus.tokenizer->fingerprint();
  return identity.dump();
}

bool differs_from_data(const Checkpoint& checkpoint, const data::Corpus& corpus,
                       std::string_view part) {
  const json was = json::parse(checkpoint.info().data), is = json::parse(data_identity(corpus));
  return std::ranges::any_of(was.items(), [&](const auto& field) {
    return field.key().starts_with(part) && field.value() != is.value(field.key(), json());
  });
}

model::GptConfig checkpoint_model(const CheckpointInfo& info, const std::string& where) {
  const json config = config_of(info);
  const auto model = config.find("model");
  if (model == config.end() || !model->is_object()) refuse(where, "no model in its manifest");
  model::GptConfig out;
  for_each_gpt_field(out, [&]<class Value>(const GptField& field, Value& value) {
    const auto found = model->find(field.name);
    // The first checkpoints, which hold plain models only, lack the switches; the switches are off.
    if (found == model->end() && std::is_same_v<Value, bool>) return;
    if (found == model->end()) refuse(where, concat("no model.", field.name, " in its manifest"));
    try {
      if (std::is_same_v<Value, std::int64_t> && !found->is_number_integer())
        refuse(where, concat("model.", field.name, " is ", found->dump()));
      found->get_to(value);
    } catch (const json::exception&) {
      refuse(where, concat("model.", field.name, " is ", found->dump()));
    }
  });
  if (const auto dtype = model->find("dtype"); dtype != model->end()) {
    if (*dtype == name_of(DType::kBF16))
      out.dtype = DType::kBF16;
    else if (*dtype != name_of(DType::kF32))
      refuse(where, concat("model.dtype is ", dtype->dump()));
  }
  if (const auto token = model->find("document_token"); token != model->end()) {
    if (!token->is_number_integer() || *token < 0 || *token >= out.vocab_size)
      refuse(where, concat("model.document_token is ", token->dump()));
    token->get_to(out.document_token);
  }
  check_read_config(out, where);
  return out;
}

std::string model_difference(const model::GptConfig& is, const model::GptConfig& wanted) {
  std::string out;
  for (const GptField& field : gpt_fields())
    std::visit(
        [&](auto member) {
          if (is.*member == wanted.*member) return;
          out += concat(out.empty() ? "" : "; ", field.name, " ", json_of(is.*member).dump(),
                        ", not ", json_of(wanted.*member).dump());
        },
        field.member);
  return out;
}

std::string model_text(const model::GptConfig& model) {
  std::string out;
  for_each_gpt_field(model, [&](const GptField& field, const auto& value) {
    out += concat(out.empty() ? "" : ", ", field.name, " ", json_of(value).dump());
  });
  return out;
}

std::string checkpoint_options_text(const CheckpointInfo& info, const std::string& where) {
  const json config = config_of(info);
  const auto text = config.find("options");
  if (text == config.end() || !text->is_string()) refuse(where, "no options in its manifest");
  return text->get<std::string>();
}

TrainOptions checkpoint_options(const CheckpointInfo& info, const std::string& where) {
  TrainOptions options;
  const std::vector<OptionRow> rows = option_table(options);
  for (const TomlEntry& entry : parse_toml(checkpoint_options_text(info, where), where)) {
    const auto row = std::ranges::find(rows, entry.key, &OptionRow::name);
    if (row == rows.end()) refuse(where, concat("unknown option '", entry.key, "'"));
    set_option(*row, entry.values, concat(where, ": ", entry.key));
  }
  return options;
}

}  // namespace muo::trainer
