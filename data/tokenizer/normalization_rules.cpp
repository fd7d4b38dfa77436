#include "data/tokenizer/normalization_rules.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace muo::data {
namespace {

// Limit of a replacement in bytes; NFKC's longest has 33.
constexpr std::size_t kMaxReplacement = 1024;
// Limit of rules that match at one position of a text: Normalizer::kMaxTrieResultsSize of
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

  // Visits the trie depth first, because a unit's number of matches depends on its children's.
  // Several parents may share children.
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
    int below = 0;  // most matches among the children so far
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
    // The library never reads the root's value: its key is empty.
    if (step.unit == 0 || !units_[step.unit].has_value()) return step.below;
    const Unit value = units_[step.first_child];
    if (!value.is_value() || value.value() >= texts_.size())
      fail("unit ", step.unit, " of its trie has no text");
    if (texts_.substr(value.value(), kMaxReplacement + 1).find('\0') == std::string_view::npos)
      fail("a text of more than ", kMaxReplacement, " bytes");
    if (step.below >= kMaxRulesAtOnePosition)
      fail("more than ", kMaxRulesAtOnePosition, " match one place");
    return step.below + 1;
  }

  std::string_view source_, texts_;
  std::vector<Unit> units_;
  std::vector<int> matches_;  // most matches from a unit on; or kNotSeen, kOpen
};

}  // namespace

void check_normalization_rules(std::string_view rules, std::string_view source) {
  Checker(rules, source).run();
}

}  // namespace muo::data
