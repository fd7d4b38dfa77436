#include "data/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/utf8.h"
#include "data/tokenizer/fingerprint.h"
#include "data/tokenizer/normalization_rules.h"
#include "data/tokenizer/protobuf_reader.h"

namespace muo::data {
namespace {

using Field = ProtobufReader::Field;
using Piece = SentencePieceModel::Piece;
using PieceType = SentencePieceModel::PieceType;

// libsentencepiece's trie of pieces recurses once per byte. Trained pieces have at most a few
// hundred bytes.
constexpr std::size_t kMaxPieceBytes = 4096;
// Limit of user-defined pieces that match at one position of a text: PrefixMatcher's array size.
constexpr std::size_t kMaxPiecesAtOnePosition = 64;

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  SentencePieceModel read(std::string_view file) {
    each_field(file, "the file", [&](const Field& field) {
      switch (field.number) {
        case 1:
          read_piece(message_of(field));
          break;
        case 2:
          read_trainer_spec(message_of(field));
          break;
        case 3:
          read_normalizer_spec(message_of(field));
          break;
        case 5:
          read_denormalizer_spec(message_of(field));
          break;
        default:
          break;  // the library's self-tests, and extensions
      }
    });
    if (model_.pieces.empty()) fail("has no pieces");
    if (!is_utf8(model_.unknown)) fail("its unk_surface is not UTF-8");
    if (!model_.rules.empty()) check_normalization_rules(model_.rules, source_);
    check_user_defined();
    return std::move(model_);
  }

 private:
  template <class... What>
  [[noreturn]] void fail(const What&... what) const {
    throw InputError(concat(source_, ": a SentencePiece model, but ", what...));
  }

  template <class Take>
  void each_field(std::string_view message, std::string_view what, const Take& take) const {
    ProtobufReader reader(message);
    for (Field field; reader.next(field);)
      take(field);
    if (!reader.ok()) fail(what, " is cut short or damaged; copy it again");
  }
  void want(const Field& field, ProtobufReader::Wire wire) const {
    if (field.wire != wire) fail("field ", field.number, " has wire type ", field.wire);
  }
  [[nodiscard]] std::string_view message_of(const Field& field) const {
    want(field, ProtobufReader::kBytes);
    return field.bytes;
  }
  [[nodiscard]] bool flag_of(const Field& field) const {
    want(field, ProtobufReader::kVarint);
    return field.value != 0;
  }
  template <class Enum>
  [[nodiscard]] Enum kind_of(const Field& field, Enum last, std::string_view what) const {
    want(field, ProtobufReader::kVarint);
    if (field.value == 0 || field.value > static_cast<std::uint64_t>(last))
      fail(what, " ", field.value, " is not known");
    return static_cast<Enum>(field.value);
  }

  void read_piece(std::string_view message) {
    Piece piece;
    const std::string what = concat("piece ", model_.pieces.size());
    each_field(message, what, [&](const Field& field) {
      if (field.number == 1) {
        piece.text = message_of(field);
      } else if (field.number == 2) {
        want(field, ProtobufReader::kFixed32);
        piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
      } else if (field.number == 3) {
        piece.type = kind_of(field, PieceType::kByte, concat("the type of ", what));
      }
    });
    if (piece.text.empty() || piece.text.size() > kMaxPieceBytes || !is_utf8(piece.text) ||
        piece.text.find('\0') != std::string::npos)
      fail(what, " is not UTF-8 of 1 to ", kMaxPieceBytes, " bytes without a zero byte");
    if (!std::isfinite(piece.score)) fail("the score of ", what, " is not finite");
    model_.pieces.push_back(std::move(piece));
  }

  void read_trainer_spec(std::string_view message) {
    each_field(message, "its trainer_spec", [&](const Field& field) {
      switch (field.number) {
        case 3:
          model_.kind = kind_of(field, SentencePieceModel::Kind::kChar, "its model_type");
          break;
        case 24:
          model_.space_is_suffix = flag_of(field);
          break;
        case 26:
          model_.space_only_pieces = flag_of(field);
          break;
        case 35:
          model_.byte_fallback = flag_of(field);
          break;
        case 44:  // the library ends it at a zero byte
          model_.unknown = message_of(field).substr(0, message_of(field).find('\0'));
          break;
        case 46:
          if (!message_of(field).empty()) model_.bos = message_of(field);
          break;
        default:
          break;
      }
    });
  }

  void read_normalizer_spec(std::string_view message) {
    each_field(message, "its normalizer_spec", [&](const Field& field) {
      switch (field.number) {
        case 2:
          model_.rules = message_of(field);
          break;
        case 3:
          model_.add_dummy_prefix = flag_of(field);
          break;
        case 4:
          model_.remove_extra_spaces = flag_of(field);
          break;
        case 5:
          model_.escape_spaces = flag_of(field);
          break;
        default:
          break;
      }
    });
  }

  void read_denormalizer_spec(std::string_view message) const {
    each_field(message, "its denormalizer_spec", [&](const Field& field) {
      if (field.number == 2 && !message_of(field).empty())
        fail("it has denormalization rules, with which a token has no text of its own");
    });
  }

  // In sorted order, a piece follows the pieces that are its prefixes.
  void check_user_defined() const {
    std::vector<std::string_view> texts, prefixes;
    for (const Piece& piece : model_.pieces)
      if (piece.type == PieceType::kUserDefined) texts.push_back(piece.text);
    std::sort(texts.begin(), texts.end());
    for (const std::string_view text : texts) {
      while (!prefixes.empty() && !text.starts_with(prefixes.back()))
        prefixes.pop_back();
      prefixes.push_back(text);
      if (prefixes.size() > kMaxPiecesAtOnePosition)
        fail("more than ", kMaxPiecesAtOnePosition, " user-defined pieces begin with '",
             prefixes.front(), "'");
    }
  }

  std::string_view source_;
  SentencePieceModel model_;
};

}  // namespace

bool is_sentencepiece_model(std::string_view file) {
  Field first;
  if (!ProtobufReader(file).next(first) || first.number != 1 ||
      first.wire != ProtobufReader::kBytes)
    return false;
  ProtobufReader piece(first.bytes);
  bool has_text = false;
  for (Field field; piece.next(field);)
    has_text |= field.number == 1 && field.wire == ProtobufReader::kBytes;
  return has_text && piece.ok();
}

SentencePieceModel read_sentencepiece_model(std::string_view file, std::string_view source) {
  return Reader(source).read(file);
}

int byte_of_piece(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const std::size_t high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(16 * high + low);
}

std::string fingerprint_of(const SentencePieceModel& model) {
  Fingerprint out;
  out.add("SentencePiece");
  out.add(model.pieces.size());
  for (const Piece& piece : model.pieces) {
    out.add(piece.text);
    out.add(std::bit_cast<std::uint32_t>(piece.score));
    out.add(static_cast<std::uint64_t>(piece.type));
  }
  out.add(static_cast<std::uint64_t>(model.kind));
  for (const bool flag : {model.byte_fallback, model.space_is_suffix, model.space_only_pieces,
                          model.add_dummy_prefix, model.remove_extra_spaces, model.escape_spaces})
    out.add(flag ? 1U : 0U);
  out.add(model.rules);
  return out.text();
}

}  // namespace muo::data
