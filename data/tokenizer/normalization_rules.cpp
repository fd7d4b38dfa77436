#include "data/tokenizer/normalization_rules.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace muo::data {
namespace {

// Limits in bytes of a rule's key and replacement; the longest replacement of NFKC has 33.
constexpr std::size_t kMaxKey = 1024, kMaxReplacement = 1024;
// Limit of the rules that match at one position of a text: Normalizer::kMaxTrieResultsSize of
// libsentencepiece.
constexpr int kMaxRulesAtOnePosition = 32;
constexpr std::size_t kBlock = 256;  // units per block; all children of a unit lie in one block

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;)
    number = number << 8U | static_cast<unsigned char>(bytes[at + i]);
  return number;
}

// A unit of Darts-clone's double array.
struct Unit {
  std::uint32_t bits = 0;
  [[nodiscard]] bool is_value() const { return bits >> 31U != 0; }
  [[nodiscard]] std::uint32_t value() const { return bits & 0x7FFFFFFFU; }
  [[nodiscard]] bool has_value() const { return (bits >> 8U & 1U) != 0; }
  [[nodiscard]] bool is_child_by(std::uint32_t byte) const { return (bits & 0x800000FFU) == byte; }
  [[nodiscard]] std::uint32_t offset() const { return bits >> 10U << ((bits & 0x200U) >> 6U); }
};

class Checker {
 public:
  Checker(std::string_view rules, std::string_view source) : source_(source) {
    if (rules.size() <= 4) fail("too short for the trie's size");
    const std::size_t trie_bytes = number_at(rules, 0);
    if (trie_bytes == 0 || trie_bytes % (4 * kBlock) != 0 || trie_bytes >= rules.size() - 4)
      fail("the trie has ", trie_bytes, " bytes, all rules ", rules.size());
    units_.resize(trie_bytes / 4);
    for (std::size_t i = 0; i < units_.size(); ++i)
      units_[i] = {number_at(rules, 4 + 4 * i)};
    texts_ = rules.substr(4 + trie_bytes);
    if (texts_.back() != '\0') fail("the last replacement has no terminator");
  }

  void run() {
    matches_.assign(units_.size(), kNotSeen);
    most_matches(0, 0);
  }

 private:
  static constexpr int kNotSeen = -1;

  template <class... What>
  [[noreturn]] void fail(const What&... what) const {
    throw InputError(
        concat(source_, ": normalization rules: ", what..., "; fetch or train the model again"));
  }

  // The largest number of rules on one path from `unit` to a leaf. Results are kept in matches_,
  // because several units may share children.
  int most_matches(std::uint32_t unit, std::size_t depth) {
    if (depth > kMaxKey) fail("a key has more than ", kMaxKey, " bytes, or the trie has a cycle");
    if (matches_[unit] != kNotSeen) return matches_[unit];
    const std::uint32_t first_child = unit ^ units_[unit].offset();
    if (first_child >= units_.size()) fail("unit ", unit, " of the trie points outside of it");
    int matches = 0;
    for (std::uint32_t byte = 0; byte < kBlock; ++byte)
      if (units_[first_child ^ byte].is_child_by(byte))
        matches = std::max(matches, most_matches(first_child ^ byte, depth + 1));
    // The library never reads the root's value, whose key is empty.
    if (unit != 0 && units_[unit].has_value()) {
      check_value(unit, units_[first_child]);
      if (++matches > kMaxRulesAtOnePosition)
        fail("more than ", kMaxRulesAtOnePosition, " match at one position");
    }
    return matches_[unit] = matches;
  }

  void check_value(std::uint32_t unit, Unit value) const {
    if (!value.is_value() || value.value() >= texts_.size())
      fail("unit ", unit, " of the trie has no replacement");
    if (texts_.substr(value.value(), kMaxReplacement + 1).find('\0') == std::string_view::npos)
      fail("a replacement has more than ", kMaxReplacement, " bytes");
  }

  std::string_view source_, texts_;
  std::vector<Unit> units_;
  std::vector<int> matches_;  // of most_matches(), or kNotSeen
};

}  // namespace

void check_normalization_rules(std::string_view rules, std::string_view source) {
  Checker(rules, source).run();
}

}  // namespace muo::data
