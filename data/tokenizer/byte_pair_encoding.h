#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizer/vocabulary.h"

namespace muo::data {

// Two tokens next to each other that become one.
struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
};

// Byte pair encoding (Sennrich, Haddow, Birch 2016, section 3.2; of bytes: Radford et al. 2019,
// section 2.2): a piece of text is cut into bytes, and as long as two neighbours can be merged, the
// leftmost two whose merge comes first in the list are. Thread-safe.
class BytePairEncoding {
 public:
  // `merges`: the first comes first; of two with the same parts the first counts. With
  // `whole_pieces` a piece that is a token is that one, whatever the merges say (tiktoken's way).
  // All bytes that UTF-8 has are tokens, or it is an InputError that names `source`.
  BytePairEncoding(Vocabulary vocabulary, std::span<const Merge> merges, bool whole_pieces,
                   std::string_view source);

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends to `ids` what `piece` becomes. Throws InputError for a byte without a token.
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
  Vocabulary whole_;  // the pieces that become one token
  std::vector<std::int32_t> byte_ids_;
  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
};

// The merges that give the ids of tiktoken, where any two neighbours may be merged that are a token
// together, the smallest id first: each token by all cuts into two others.
std::vector<Merge> merges_by_rank(const Vocabulary& vocabulary);

}  // namespace muo::data
