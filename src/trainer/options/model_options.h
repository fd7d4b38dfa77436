#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/check.h"
#include "base/enum_names.h"
#include "model/gpt_config.h"
#include "trainer/options/option_row.h"

namespace muo::trainer {

inline constexpr std::string_view kModelGroup = "Model";
inline constexpr double kMaxLayers = 1024, kMaxWidth = 1 << 16, kMaxVocab = 1 << 24;

// A field of GptConfig and its names: in checkpoints, as an option, in nanochat's files.
struct GptField {
  using Member = std::variant<std::int64_t model::GptConfig::*, float model::GptConfig::*,
                              double model::GptConfig::*, bool model::GptConfig::*,
                              std::string model::GptConfig::*>;

  std::string_view name;  // in a checkpoint
  Member member;
  std::string_view nanochat = {};  // in nanochat's meta_*.json; empty: none
  // Set by --model nanochat. A switch that an older checkpoint lacks is off.
  bool by_preset = false;
  OptionRow option = {};  // its field is bound by option_table(); without a name: only the range
};

// The only list of the GptConfig fields that define a model. It excludes dtype and other fields
// that affect only speed, memory or rounding, and document_token, which only marks where documents
// begin.
inline constexpr std::size_t kGptFields = 15;
const std::array<GptField, kGptFields>& gpt_fields();

// check_config() for a model that was read from a file; also requires its numbers to be in the
// ranges of the options. Throws InputError("WHERE: FIELD: reason").
void check_read_config(const model::GptConfig& model, const std::string& where);

// Returns true if `field` is the field of `member`.
template <class Value>
bool is_member(const GptField& field, Value model::GptConfig::*member) {
  const auto* const held = std::get_if<Value model::GptConfig::*>(&field.member);
  return held != nullptr && *held == member;
}

// Calls visit(field, value of the field in `config`) for every field; `config` may be const.
template <class Config, class Visit>
void for_each_gpt_field(Config& config, const Visit& visit) {
  for (const GptField& field : gpt_fields())
    std::visit([&](auto member) { visit(field, config.*member); }, field.member);
}

// Defaults of the fields that are not given, with or without nanochat's extras.
enum class ModelPreset : std::uint8_t { kPlain, kNanochat };
constexpr auto names_of(ModelPreset) { return name_list("plain", "nanochat"); }

// A model defined by its depth, its preset and the fields that are set explicitly.
struct ModelOptions {
  // softcap depends neither on depth nor on the preset, so its default counts as explicitly set.
  ModelOptions() { set(&model::GptConfig::softcap, values.softcap); }

  // The depth sets width and heads as nanochat does.
  std::int64_t depth = 4, aspect_ratio = 64, head_size = 128;
  ModelPreset preset = ModelPreset::kNanochat;
  bool document_mask = false;  // attention and smear stay within documents

  // aspect_ratio for each layer, rounded up to a multiple of the head size.
  [[nodiscard]] std::int64_t width_of(std::int64_t layers) const;

  template <class Value>
  void set(Value model::GptConfig::*member, const std::type_identity_t<Value>& value) {
    values.*member = value;
    is_set[index_of(member)] = true;
  }
  // Sets every field from `model`, so that none depends on depth or preset.
  void set_all(const model::GptConfig& model) {
    values = model;
    is_set.fill(true);
  }
  template <class Value>
  [[nodiscard]] bool has(Value model::GptConfig::*member) const {
    return is_set[index_of(member)];
  }
  template <class Value>
  [[nodiscard]] Value value_or(Value model::GptConfig::*member,
                               const std::type_identity_t<Value>& otherwise) const {
    return has(member) ? values.*member : otherwise;
  }

  model::GptConfig values = {};
  std::array<bool, kGptFields> is_set = {};  // by gpt_fields()

 private:
  template <class Value>
  static std::size_t index_of(Value model::GptConfig::*member) {
    for (std::size_t i = 0; i < kGptFields; ++i)
      if (is_member(gpt_fields()[i], member)) return i;
    MUO_FAIL("gpt_fields() lacks a member of GptConfig");
  }
};

// Returns the model that `options` define. If the number of heads is automatic, the head size is as
// near to 128 as the width allows. Fields that are not in gpt_fields() keep GptConfig's defaults.
model::GptConfig make_gpt_config(const ModelOptions& options, std::int64_t vocab_size);

}  // namespace muo::trainer
