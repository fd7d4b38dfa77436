#include "data/tokenizer/byte_pair_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <utility>

#include "base/check.h"
#include "data/tokenizer/pair_hash.h"

namespace muo::data {
namespace {

constexpr bool is_in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }
constexpr std::size_t kShort = 48;  // bytes up to which it is faster to rescan all pairs

}  // namespace

BytePairEncoding::BytePairEncoding(Vocabulary vocabulary, std::span<const Merge> merges,
                                   bool whole_pieces, std::string_view source)
    : vocabulary_(std::move(vocabulary)) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_.push_back(vocabulary_.find({&c, 1}));
    if (byte_ids_.back() < 0 && is_in_utf8(byte))
      throw InputError(concat(source, ": no token for byte ", byte,
                              ": not a byte-level vocabulary; give one with all bytes of UTF-8"));
  }
  slots_.resize(std::bit_ceil(2 * merges.size() + 2));
  std::uint32_t rank = 0;
  for (const Merge& merge : merges)
    add(merge, rank++);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < vocabulary_.id_count(); ++id) {
    const std::string_view bytes = vocabulary_.bytes_of(id);
    if (bytes.empty()) continue;
    ids.clear();
    if (!whole_pieces) merge_all(bytes, ids);
    if (whole_pieces || (ids.size() == 1 && ids.front() == id)) whole_.add(bytes, id);
  }
}

void BytePairEncoding::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t whole = whole_.find(piece); whole >= 0) {
    ids.push_back(whole);
    return;
  }
  for (const char c : piece)
    if (byte_ids_[static_cast<unsigned char>(c)] < 0)
      throw InputError(
          fmt::format("the vocabulary has no token for byte 0x{:02X}, which UTF-8 never contains: "
                      "give texts in UTF-8",
                      static_cast<unsigned char>(c)));
  merge_all(piece, ids);
}

void BytePairEncoding::merge_all(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (piece.size() <= kShort)
    merge_short(piece, ids);
  else
    merge_long(piece, ids);
}

const BytePairEncoding::Slot& BytePairEncoding::find(std::int32_t left, std::int32_t right) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash_of_pair(left, right) & mask;
  while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right))
    at = (at + 1) & mask;
  return slots_[at];
}

void BytePairEncoding::add(const Merge& merge, std::uint32_t rank) {
  const Slot& slot = find(merge.left, merge.right);
  if (slot.left >= 0) return;
  slots_[static_cast<std::size_t>(&slot - slots_.data())] = {merge.left, merge.right, rank,
                                                             merge.result};
}

void BytePairEncoding::merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const {
  struct Part {
    std::int32_t id = 0;
    std::uint32_t rank = kNever;  // rank of the merge with the next token
    std::int32_t merged = 0;
  };
  std::array<Part, kShort> parts;
  std::size_t count = piece.size();
  const auto look_up = [&](std::size_t at) {
    if (at + 1 >= count) {
      parts[at].rank = kNever;
      return;
    }
    const Slot& slot = find(parts[at].id, parts[at + 1].id);
    parts[at].rank = slot.rank;
    parts[at].merged = slot.result;
  };
  for (std::size_t i = 0; i < count; ++i)
    parts[i].id = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i < count; ++i)
    look_up(i);
  for (;;) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < count; ++i)
      if (parts[i].rank < parts[best].rank) best = i;
    if (parts[best].rank == kNever) break;
    parts[best].id = parts[best].merged;
    std::copy(parts.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              parts.begin() + static_cast<std::ptrdiff_t>(count),
              parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    --count;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  for (std::size_t i = 0; i < count; ++i)
    ids.push_back(parts[i].id);
}

void BytePairEncoding::merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kNone = ~std::size_t{0};
  struct Part {
    std::int32_t id = 0;  // -1: merged into the previous one
    std::size_t before = 0, next = 0;
  };
  struct Candidate {
    std::uint32_t rank = 0;
    std::size_t at = 0;
    std::int32_t left = 0, right = 0, result = 0;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  std::vector<Part> parts(piece.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](std::size_t at) {
    if (at == kNone || parts[at].next == kNone) return;
    const std::int32_t left = parts[at].id;
    const std::int32_t right = parts[parts[at].next].id;
    const Slot& slot = find(left, right);
    if (slot.rank != kNever) candidates.push({slot.rank, at, left, right, slot.result});
  };
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], i == 0 ? kNone : i - 1,
                i + 1 == parts.size() ? kNone : i + 1};
  for (std::size_t i = 0; i < parts.size(); ++i)
    consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Part& part = parts[best.at];
    if (part.id != best.left || part.next == kNone || parts[part.next].id != best.right) continue;
    Part& gone = parts[part.next];
    part.id = best.result;
    part.next = gone.next;
    gone.id = -1;
    if (part.next != kNone) parts[part.next].before = best.at;
    consider(part.before);
    consider(best.at);
  }
  for (std::size_t at = 0; at != kNone; at = parts[at].next)
    ids.push_back(parts[at].id);
}

std::vector<Merge> merges_by_rank(const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  for (std::int32_t id = 0; id < vocabulary.id_count(); ++id) {
    const std::string_view bytes = vocabulary.bytes_of(id);
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const std::int32_t left = vocabulary.find(bytes.substr(0, cut));
      const std::int32_t right = vocabulary.find(bytes.substr(cut));
      if (left >= 0 && right >= 0) merges.push_back({left, right, id});
    }
  }
  return merges;
}

}  // namespace muo::data
