#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// The parts of a SentencePiece model that affect ids and texts. Numeric values are those of
// sentencepiece_model.proto.
struct SentencePieceModel {
  enum class PieceType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string text;  // a space is U+2581
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;  // indexed by id

  enum class Kind { kUnigram = 1, kBpe, kWord, kChar };
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;        // unknown characters become bytes
  bool space_is_suffix = false;      // U+2581 ends words, rather than begins them
  bool space_only_pieces = false;    // several U+2581 stay one word
  std::string unknown = " \u2047 ";  // what an unknown piece is decoded as
  std::string bos = "<s>";           // the piece that starts texts, if it is a control piece
  bool add_dummy_prefix = true;      // adds a space before a text
  bool remove_extra_spaces = true;   // at both ends, and repeated ones elsewhere
  bool escape_spaces = true;         // as U+2581
  std::string rules;                 // normalization rules; see normalization_rules.h
};

inline constexpr std::string_view kSpacePiece = "\u2581";

// True if a file begins like a model: with a piece.
bool is_sentencepiece_model(std::string_view file);

// Parses a model. Throws InputError, "SOURCE: ...", for malformed models, for those that would make
// libsentencepiece access memory out of bounds (it trusts models), and for denormalization rules,
// with which pieces have no text of their own.
SentencePieceModel read_sentencepiece_model(std::string_view file, std::string_view source);

// The byte that a piece "<0x00>" to "<0xFF>" stands for; -1 for any other text.
int byte_of_piece(std::string_view text);

// Equal for models that encode every text to the same ids.
std::string fingerprint_of(const SentencePieceModel& model);

}  // namespace muo::data
