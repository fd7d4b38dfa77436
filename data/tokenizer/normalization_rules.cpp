#include "data/tokenizer/normalization_rules.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace muo::data {
namespace {

// Of a text that replaces another. NFKC's longest has 33 bytes.
constexpr std::size_t kMostReplacement = 1024;
// Rules that one place of a text may match: Normalizer::kMaxTrieResultsSize of libsentencepiece.
constexpr int kMaxRulesAtOnePlace = 32;
constexpr std::size_t kBlock = 256;  // units: a child lies in its parent's block of children

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
    if (rules.size() <= 4) fail("shorter than its size");
    const std::size_t trie_bytes = number_at(rules, 0);
    if (trie_bytes == 0 || trie_bytes % (4 * kBlock) != 0 || trie_bytes >= rules.size() - 4)
      fail("a trie of ", trie_bytes, " bytes in ", rules.size());
    units_.resize(trie_bytes / 4);
    for (std::size_t i = 0; i < units_.size(); ++i)
      units_[i] = {number_at(rules, 4 + 4 * i)};
    texts_ = rules.substr(4 + trie_bytes);
    if (texts_.back() != '\0') fail("its last text has no end");
  }

  // Depth first, as children's numbers of matches make their parents'. Several parents may share
  // their children.
  void run() {
    matches_.assign(units_.size(), kNotSeen);
    std::vector<Step> path;
    enter(0, path);
    while (!path.empty()) {
      Step& step = path.back();
      const std::uint32_t byte = step.next_byte++;
      if (byte == kBlock) {
        const int matches = matches_of(step);
        matches_[step.unit] = matches;
        path.pop_back();
        if (!path.empty()) path.back().below = std::max(path.back().below, matches);
        continue;
      }
      const std::uint32_t child = step.first_child ^ byte;
      if (!units_[child].is_child_by(byte)) continue;
      if (matches_[child] == kOpen) fail("its trie leads in circles");
      if (matches_[child] >= 0)
        step.below = std::max(step.below, matches_[child]);
      else
        enter(child, path);
    }
  }

 private:
  static constexpr int kNotSeen = -2, kOpen = -1;
  struct Step {
    std::uint32_t unit = 0, first_child = 0, next_byte = 0;
    int below = 0;  // matches of the children so far
  };

  template <class... What>
  [[noreturn]] void fail(const What&... what) const {
    throw InputError(
        concat(source_, ": rules of normalization: ", what..., "; fetch or train the model again"));
  }

  void enter(std::uint32_t unit, std::vector<Step>& path) {
    const std::uint32_t first_child = unit ^ units_[unit].offset();
    if (first_child >= units_.size()) fail("unit ", unit, " of its trie leads outside");
    matches_[unit] = kOpen;
    path.push_back({.unit = unit, .first_child = first_child});
  }

  [[nodiscard]] int matches_of(const Step& step) const {
    // The library asks no value of the root, whose key is empty.
    if (step.unit == 0 || !units_[step.unit].has_value()) return step.below;
    const Unit value = units_[step.first_child];
    if (!value.is_value() || value.value() >= texts_.size())
      fail("unit ", step.unit, " of its trie has no text");
    if (texts_.substr(value.value(), kMostReplacement + 1).find('\0') == std::string_view::npos)
      fail("a text of more than ", kMostReplacement, " bytes");
    if (step.below >= kMaxRulesAtOnePlace)
      fail("more than ", kMaxRulesAtOnePlace, " match one place");
    return step.below + 1;
  }

  std::string_view source_, texts_;
  std::vector<Unit> units_;
  std::vector<int> matches_;  // of a unit and what follows it, at most; or kNotSeen, kOpen
};

}  // namespace

void check_normalization_rules(std::string_view rules, std::string_view source) {
  Checker(rules, source).run();
}

}  // namespace muo::data
