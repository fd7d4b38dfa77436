#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_tokenizer.h"

namespace muo::kit {

// Finds the merges of a byte-level BPE: repeatedly, the most frequent pair of neighbours in all
// pieces of the text becomes a token (Sennrich, Haddow, Birch 2016, algorithm 1). Of equally
// frequent pairs, the one with the smaller ids comes first, so the result depends neither on the
// order of the text nor on the number of threads.
class BpeTrainer {
 public:
  // `pattern` is as in read_split(), whose errors the constructor throws. Here unmatched text also
  // forms pieces, so that no text is lost.
  BpeTrainer(std::string_view pattern, int threads);

  // Splits the texts and counts their pieces.
  void add(std::span<const std::string_view> texts);
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  // Returns a definition of `vocab_size` tokens, or fewer if no pairs are left: ids 0 to 255 are
  // bytes, then come merges, and the last ids are `special`. Throws InputError if `vocab_size` is
  // too small for the bytes and special tokens. Call this once.
  data::BpeDefinition train(std::int64_t vocab_size, const std::vector<std::string>& special);

 private:
  struct Counts {
    data::Vocabulary pieces;
    std::vector<std::int64_t> count;  // by id of the piece
    void add(std::string_view piece, std::int64_t times);
  };

  data::Split split_;
  data::TextSplitter splitter_;
  std::vector<Counts> counts_;  // one per thread
  std::int64_t bytes_ = 0;
};

}  // namespace muo::kit
