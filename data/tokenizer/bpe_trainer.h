#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_tokenizer.h"

namespace muo::data {

// Finds the merges of a byte-level BPE: again and again the two neighbours that occur together most
// often, over all pieces of the text, become a token (Sennrich, Haddow, Birch 2016, algorithm 1).
// Of pairs that are equally frequent the one with the smaller ids comes first, so that neither the
// order of the text nor the number of threads matters.
class BpeTrainer {
 public:
  // `pattern` is one of read_split(), whose errors it throws; here what it does not match is a
  // piece, too, so that no text is lost.
  BpeTrainer(std::string_view pattern, int threads);

  // Counts the pieces of these texts.
  void add(std::span<const std::string_view> texts);
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  // Ids 0 to 255 are bytes, then come merges until there are `vocab_size` tokens, `special` among
  // them with the last ids; or fewer, where no two neighbours are left. Throws InputError if
  // `vocab_size` does not hold more than bytes and special tokens. Called once.
  BpeDefinition train(std::int64_t vocab_size, const std::vector<std::string>& special);

 private:
  struct Counts {
    Vocabulary pieces;
    std::vector<std::int64_t> count;  // of the piece with that id
    void add(std::string_view piece, std::int64_t times);
  };

  Split split_;
  TextSplitter splitter_;
  std::vector<Counts> counts_;  // of each thread
  std::int64_t bytes_ = 0;
};

}  // namespace muo::data
