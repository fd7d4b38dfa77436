#include "kit/bpe_trainer.h"

#include <algorithm>
#include <atomic>
#include <queue>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "data/tokenizer/pair_hash.h"

namespace muo::kit {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

// Counts the pairs of neighbouring tokens and lists the words in which each pair may occur.
class PairTable {
 public:
  struct Entry {
    Pair pair = {-1, -1};
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;
  };

  PairTable() : slots_(1 << 16, kFree) {}

  Entry& at(Pair pair) {
    if (2 * (entries_.size() + 1) > slots_.size()) grow();
    std::uint32_t& slot = slots_[slot_of(pair)];
    if (slot == kFree) {
      slot = static_cast<std::uint32_t>(entries_.size());
      entries_.push_back({.pair = pair, .count = 0, .words = {}});
    }
    return entries_[slot];
  }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  static constexpr std::uint32_t kFree = ~std::uint32_t{0};

  [[nodiscard]] std::size_t slot_of(Pair pair) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = data::hash_of_pair(pair.first, pair.second) & mask;
    while (slots_[at] != kFree && entries_[slots_[at]].pair != pair)
      at = (at + 1) & mask;
    return at;
  }
  void grow() {
    slots_.assign(2 * slots_.size(), kFree);
    for (std::size_t i = 0; i < entries_.size(); ++i)
      slots_[slot_of(entries_[i].pair)] = static_cast<std::uint32_t>(i);
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // indices into entries_; open addressing
};

struct Word {
  std::size_t begin = 0, size = 0;  // its tokens' range in MergeSearch::tokens_
  std::int64_t count = 0;
};

struct Candidate {
  std::int64_t count = 0;
  Pair pair;
  // True if `other` is to be merged first.
  bool operator<(const Candidate& other) const {
    return std::tuple(count, other.pair) < std::tuple(other.count, pair);
  }
};

class MergeSearch {
 public:
  void add(std::string_view piece, std::int64_t count) {
    words_.push_back({tokens_.size(), piece.size(), count});
    for (const char c : piece)
      tokens_.push_back(static_cast<unsigned char>(c));
  }

  // Appends to `merges` and `vocabulary` until `vocabulary` has `tokens` tokens.
  void run(std::int64_t tokens, data::Vocabulary& vocabulary, std::vector<data::Merge>& merges) {
    count_all();
    while (vocabulary.size() < tokens && !candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      PairTable::Entry& entry = pairs_.at(best.pair);
      if (entry.count != best.count) {  // outdated
        if (entry.count > 0) candidates_.push({entry.count, best.pair});
        continue;
      }
      const auto [left, right] = best.pair;
      std::string bytes(vocabulary.bytes_of(left));
      bytes += vocabulary.bytes_of(right);
      std::int32_t result = vocabulary.find(bytes);
      if (result < 0) {
        result = vocabulary.id_count();
        vocabulary.add(bytes, result);
      }
      merges.push_back({left, right, result});
      const std::vector<std::uint32_t> words = std::move(entry.words);
      entry.words = {};
      for (const std::uint32_t word : words)
        apply_merge(word, merges.back());
      std::sort(increased_.begin(), increased_.end());
      increased_.erase(std::unique(increased_.begin(), increased_.end()), increased_.end());
      for (const Pair& pair : increased_)
        if (const std::int64_t count = pairs_.at(pair).count; count > 0)
          candidates_.push({count, pair});
      increased_.clear();
    }
  }

 private:
  void count_all() {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (std::size_t i = word.begin; i + 1 < word.begin + word.size; ++i)
        change({tokens_[i], tokens_[i + 1]}, word.count, w);
    }
    for (const PairTable::Entry& entry : pairs_.entries())
      candidates_.push({entry.count, entry.pair});
    increased_.clear();
  }

  void change(Pair pair, std::int64_t by, std::uint32_t word) {
    PairTable::Entry& entry = pairs_.at(pair);
    entry.count += by;
    if (by < 0) return;
    if (entry.words.empty() || entry.words.back() != word) entry.words.push_back(word);
    increased_.push_back(pair);
  }

  void apply_merge(std::uint32_t index, const data::Merge& merge) {
    Word& word = words_[index];
    const std::span<std::int32_t> tokens(&tokens_[word.begin], word.size);
    std::size_t size = 0;  // length of the result so far, at the start of `tokens`
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i + 1 == tokens.size() || tokens[i] != merge.left || tokens[i + 1] != merge.right) {
        tokens[size++] = tokens[i];
        continue;
      }
      change({merge.left, merge.right}, -word.count, index);
      if (size > 0) {
        change({tokens[size - 1], merge.left}, -word.count, index);
        change({tokens[size - 1], merge.result}, word.count, index);
      }
      ++i;
      if (i + 1 < tokens.size()) {
        change({merge.right, tokens[i + 1]}, -word.count, index);
        change({merge.result, tokens[i + 1]}, word.count, index);
      }
      tokens[size++] = merge.result;
    }
    word.size = size;
  }

  std::vector<std::int32_t> tokens_;
  std::vector<Word> words_;
  PairTable pairs_;
  std::priority_queue<Candidate> candidates_;
  std::vector<Pair> increased_;  // pairs that became more frequent in the last merge
};

}  // namespace

void BpeTrainer::Counts::add(std::string_view piece, std::int64_t times) {
  std::int32_t id = pieces.find(piece);
  if (id < 0) {
    id = pieces.id_count();
    pieces.add(piece, id);
    count.push_back(0);
  }
  count[static_cast<std::size_t>(id)] += times;
}

BpeTrainer::BpeTrainer(std::string_view pattern, int threads)
    : split_{.pattern = data::read_split(pattern, "--pattern").pattern},
      splitter_({split_}, "--pattern"),
      counts_(static_cast<std::size_t>(threads)) {
  MUO_CHECK(threads > 0, threads, " threads");
}

void BpeTrainer::add(std::span<const std::string_view> texts) {
  std::atomic<std::size_t> next = 0;
  parallel_for(static_cast<int>(counts_.size()), counts_.size(), [&](std::size_t i) {
    for (std::size_t t = next++; t < texts.size(); t = next++)
      splitter_.split(texts[t], 0, texts[t].size(),
                      [&](std::string_view piece) { counts_[i].add(piece, 1); });
  });
  for (const std::string_view text : texts)
    bytes_ += static_cast<std::int64_t>(text.size());
}

data::BpeDefinition BpeTrainer::train(std::int64_t vocab_size,
                                      const std::vector<std::string>& special) {
  constexpr std::int64_t kBytes = 256;
  const std::int64_t tokens = vocab_size - static_cast<std::int64_t>(special.size());
  if (tokens < kBytes)
    throw InputError(concat("--vocab-size ", vocab_size, ": ", kBytes, " bytes and ",
                            special.size(), " special tokens do not fit; give more"));
  data::BpeDefinition definition;
  definition.splits = {split_};
  for (std::int32_t byte = 0; byte < kBytes; ++byte) {
    const char c = static_cast<char>(byte);
    definition.vocabulary.add({&c, 1}, byte);
  }
  Counts& all = counts_.front();
  for (std::size_t i = 1; i < counts_.size(); ++i) {
    for (std::int32_t id = 0; id < counts_[i].pieces.id_count(); ++id)
      all.add(counts_[i].pieces.bytes_of(id), counts_[i].count[static_cast<std::size_t>(id)]);
    counts_[i] = {};
  }
  MergeSearch search;
  for (std::int32_t id = 0; id < all.pieces.id_count(); ++id)
    if (const std::string_view piece = all.pieces.bytes_of(id); piece.size() > 1)
      search.add(piece, all.count[static_cast<std::size_t>(id)]);
  all = {};
  search.run(tokens, definition.vocabulary, definition.merges);
  std::int32_t next = definition.vocabulary.id_count();
  for (const std::string& text : special)
    definition.special.push_back({text, next++});
  return definition;
}

}  // namespace muo::kit
