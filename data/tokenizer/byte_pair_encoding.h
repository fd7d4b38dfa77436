#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizer/vocabulary.h"

namespace muo::data {

// A pair of neighbouring tokens and the token that replaces it.
struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
};

// Byte pair encoding (Sennrich, Haddow, Birch 2016, section 3.2; on bytes: Radford et al. 2019,
// section 2.2): a piece of text is cut into bytes. Then the pair of neighbours with the earliest
// merge in the list, the leftmost one among equals, is merged, until no neighbours can be
// merged. Thread-safe.
class BytePairEncoding {
 public:
  // `merges` are in order of priority; of two with the same parts, the first one counts. With
  // `whole_pieces`, a piece that equals a token is encoded as that token, regardless of the merges
  // (as in tiktoken). Throws InputError, which names `source`, unless every byte that occurs in
  // UTF-8 is a token.
  BytePairEncoding(Vocabulary vocabulary, std::span<const Merge> merges, bool whole_pieces,
                   std::string_view source);

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends the ids of `piece` to `ids`. Throws InputError for a byte without a token.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};
  struct Slot {
    std::int32_t left = -1, right = 0;
    std::uint32_t rank = kNever;
    std::int32_t result = 0;
  };
  [[nodiscard]] const Slot& find(std::int32_t left, std::int32_t right) const;
  void add(const Merge& merge, std::uint32_t rank);
  void merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void merge_all(std::string_view piece, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  Vocabulary whole_;  // pieces that are encoded as one token
  std::vector<std::int32_t> byte_ids_;
  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
};

// Derives merges that reproduce tiktoken's ids: tiktoken merges any two neighbours that form a
// token, the smallest id first. The result contains every cut of each token into two others.
std::vector<Merge> merges_by_rank(const Vocabulary& vocabulary);

}  // namespace muo::data
