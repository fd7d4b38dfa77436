#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "app/options/option_row.h"
#include "base/check.h"
#include "base/enum_names.h"
#include "model/gpt_config.h"

namespace muo::app {

inline constexpr std::string_view kModelGroup = "Model";
inline constexpr double kMostLayers = 1024, kMostVocab = 1 << 24;

// A field of GptConfig as a run keeps it: in checkpoints, as an option, in nanochat's files.
struct GptField {
  using Member = std::variant<std::int64_t model::GptConfig::*, float model::GptConfig::*,
                              double model::GptConfig::*, bool model::GptConfig::*,
                              std::string model::GptConfig::*>;

  std::string_view name;  // in a checkpoint
  Member member;
  std::string_view nanochat = {};  // its name in nanochat's meta_*.json; empty: it has none
  bool by_preset = false;          // --model nanochat sets it; its switches are off in checkpoints
                                   // from before they were
  OptionRow option = {};           // its field is bound by the table; without a name: a range only
};

// The only list of GptConfig's fields that make a model. dtype and what else changes speed, memory
// or rounding only are not among them, nor is document_token, which tells documents apart but not
// what becomes of one.
inline constexpr std::size_t kGptFields = 15;
const std::array<GptField, kGptFields>& gpt_fields();

// check_config() for a model that was read from a file, whose numbers have to be such as the
// options take. Throws InputError, "WHERE: FIELD: reason".
void check_read_config(const model::GptConfig& model, const std::string& where);

// Whether two fields are the same member.
template <class Value>
bool is_member(const GptField& field, Value model::GptConfig::*member) {
  const auto* const held = std::get_if<Value model::GptConfig::*>(&field.member);
  return held != nullptr && *held == member;
}

// Calls visit(field, value of it in `config`) for every field; `config` may be const.
template <class Config, class Visit>
void for_each_gpt_field(Config& config, const Visit& visit) {
  for (const GptField& field : gpt_fields())
    std::visit([&](auto member) { visit(field, config.*member); }, field.member);
}

// What the fields are that are not told: nanochat's extras, or none.
enum class ModelPreset : std::uint8_t { kPlain, kNanochat };
constexpr auto names_of(ModelPreset) { return name_list("plain", "nanochat"); }

// A model by its depth, and the fields that are set otherwise.
struct ModelOptions {
  // A field that neither depth nor preset sets counts as told: its default.
  ModelOptions() { set(&model::GptConfig::softcap, told.softcap); }

  std::int64_t depth = 4;  // sets width and heads as nanochat does
  ModelPreset preset = ModelPreset::kNanochat;
  bool document_mask = false;  // attention and smear stay within documents

  template <class Value>
  void set(Value model::GptConfig::*member, const std::type_identity_t<Value>& value) {
    told.*member = value;
    is_told[index_of(member)] = true;
  }
  // Every field as `model` has it: nothing is left to depth or preset.
  void set_all(const model::GptConfig& model) {
    told = model;
    is_told.fill(true);
  }
  template <class Value>
  [[nodiscard]] bool has(Value model::GptConfig::*member) const {
    return is_told[index_of(member)];
  }
  template <class Value>
  [[nodiscard]] Value value_or(Value model::GptConfig::*member,
                               const std::type_identity_t<Value>& otherwise) const {
    return has(member) ? told.*member : otherwise;
  }

  model::GptConfig told = {};
  std::array<bool, kGptFields> is_told = {};  // by gpt_fields()

 private:
  template <class Value>
  static std::size_t index_of(Value model::GptConfig::*member) {
    for (std::size_t i = 0; i < kGptFields; ++i)
      if (is_member(gpt_fields()[i], member)) return i;
    MUO_FAIL("a field of GptConfig that is not listed");
  }
};

// The model that `options` describe. Heads not told: as many of 128 as divide the width best.
// Everything but sizes and extras is GptConfig's default.
model::GptConfig make_gpt_config(const ModelOptions& options, std::int64_t vocab_size);

}  // namespace muo::app
