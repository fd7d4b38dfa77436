#include "data/tokenizer/sentencepiece_tokenizer.h"

#include "base/check.h"
#include "base/utf8.h"
#include "data/tokenizer/library_entry.h"

namespace muo::data {
namespace {

using PieceType = SentencePieceModel::PieceType;

constexpr std::size_t kMaxText = std::size_t{128} << 20;  // bytes

std::string text_of(const SentencePieceModel::Piece& piece, const SentencePieceModel& model) {
  if (piece.type == PieceType::kUnknown) return model.unknown;
  std::string text = piece.text;
  if (piece.type == PieceType::kControl) return text;
  if (piece.type == PieceType::kByte) {
    text = static_cast<char>(byte_of_piece(piece.text));
    return text;
  }
  for (std::size_t at = text.find(kSpacePiece); at != std::string::npos;
       at = text.find(kSpacePiece, at + 1))
    text.replace(at, kSpacePiece.size(), " ");
  return text;
}

std::unique_ptr<const SentencePieceEncoder> open_encoder(std::string_view file,
                                                         std::string_view source) {
  const auto entry = reinterpret_cast<SentencePieceEntry>(
      library_entry("libmuograph_sentencepiece.so", kSentencePieceEntry, "libsentencepiece0",
                    concat(source, ": a SentencePiece model")));
  std::string error;
  std::unique_ptr<const SentencePieceEncoder> encoder(entry(file, &error));
  if (encoder == nullptr)
    throw InputError(concat(source, ": libsentencepiece refuses this model: ", error));
  return encoder;
}

}  // namespace

// Decodes like libsentencepiece: control pieces add nothing, the dummy prefix is removed, and each
// byte that is not UTF-8 becomes U+FFFD.
class SentencePieceTokenizer::Decoder final : public TextDecoder {
 public:
  explicit Decoder(const SentencePieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string add(std::int32_t id) override {
    if (id < 0 || id >= tokenizer_.vocab_size()) return {};
    const std::string_view bytes = tokenizer_.bytes_of(id);
    const SentencePieceModel& model = tokenizer_.model_;
    const auto& piece = model.pieces[static_cast<std::size_t>(id)];
    if (piece.type == PieceType::kByte) {
      at_start_ = false;
      held_ += bytes;
      return take(utf8_cut_off(held_));
    }
    std::string text = take(0);
    if (piece.type == PieceType::kControl) return text;
    const bool drops = at_start_ && piece.type != PieceType::kUnknown &&
                       (model.add_dummy_prefix || model.remove_extra_spaces) &&
                       piece.text.starts_with(kSpacePiece);
    text += drops ? bytes.substr(1) : bytes;
    // If repeated spaces are removed, no space begins a text.
    at_start_ = at_start_ && drops && bytes.size() == 1 && model.remove_extra_spaces;
    return text;
  }

  std::string finish() override { return take(0); }

 private:
  // Returns and removes the held bytes except for the last `most`.
  std::string take(std::size_t most) {
    std::string text;
    std::string_view left(held_);
    while (left.size() > most) {
      const std::size_t valid = utf8_prefix(left);
      text += left.substr(0, valid);
      left.remove_prefix(valid);
      if (left.size() <= most) break;
      text += "\uFFFD";
      left.remove_prefix(1);
    }
    held_ = std::string(left);
    return text;
  }

  const SentencePieceTokenizer& tokenizer_;
  bool at_start_ = true;  // nothing was added yet that a dummy prefix would precede
  std::string held_;      // bytes of byte pieces, not yet a whole character
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string_view file, std::string_view source)
    : source_(source),
      model_(read_sentencepiece_model(file, source)),
      fingerprint_(fingerprint_of(model_)),
      encoder_(open_encoder(file, source)) {
  for (const SentencePieceModel::Piece& piece : model_.pieces) {
    const auto id = static_cast<std::int32_t>(bytes_.size());
    bytes_.push_back(text_of(piece, model_));
    if (piece.type != PieceType::kControl) continue;
    special_.push_back({piece.text, id});
    if (piece.text == model_.bos) bos_ = id;
  }
}

std::int64_t SentencePieceTokenizer::vocab_size() const { return std::ssize(model_.pieces); }

std::size_t SentencePieceTokenizer::encode(std::string_view text, std::size_t begin,
                                           std::size_t /*end*/,
                                           std::vector<std::int32_t>& ids) const {
  const std::string_view rest = text.substr(begin);
  if (rest.size() > kMaxText)
    throw InputError(concat(source_, ": a text of ", rest.size(),
                            " bytes: SentencePiece takes 128 MiB at most; cut it into several"));
  const std::string error = encoder_->encode(rest, ids);
  if (!error.empty())
    throw InputError(concat(source_, ": libsentencepiece cannot encode a text: ", error));
  return text.size();
}

std::string_view SentencePieceTokenizer::bytes_of(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return bytes_[static_cast<std::size_t>(id)];
}

std::unique_ptr<TextDecoder> SentencePieceTokenizer::text_decoder() const {
  return std::make_unique<Decoder>(*this);
}

}  // namespace muo::data
