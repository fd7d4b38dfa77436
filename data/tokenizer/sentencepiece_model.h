#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// What a SentencePiece model holds, as far as it bears on ids and texts: sentencepiece_model.proto,
// whose numbers these are.
struct SentencePieceModel {
  enum class PieceType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string text;  // a space is U+2581
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;  // by id

  enum class Kind { kUnigram = 1, kBpe, kWord, kChar };
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;        // unknown characters become bytes
  bool space_is_suffix = false;      // U+2581 ends words, rather than begins them
  bool space_only_pieces = false;    // several U+2581 stay one word
  std::string unknown = " \u2047 ";  // what an unknown piece is decoded as
  std::string bos = "<s>";           // the piece that starts texts, if it is a control piece
  bool add_dummy_prefix = true;      // a space before a text
  bool remove_extra_spaces = true;   // at both ends, and all but one elsewhere
  bool escape_spaces = true;         // as U+2581
  std::string rules;                 // of normalization; see normalization_rules.h
};

inline constexpr std::string_view kSpacePiece = "\u2581";

// Whether a file begins as a model does: with a piece.
bool is_sentencepiece_model(std::string_view file);

// Throws InputError, "SOURCE: ...", for what is malformed, for what would make libsentencepiece
// leave its arrays (it trusts models), and for rules of denormalization, by which pieces are not
// texts.
SentencePieceModel read_sentencepiece_model(std::string_view file, std::string_view source);

// The byte of a piece <0x00> to <0xFF>; -1 for another text.
int byte_of_piece(std::string_view text);

// Equal for models that give the same ids to every text.
std::string fingerprint_of(const SentencePieceModel& model);

}  // namespace muo::data
