#include "data/tokenizer/vocabulary.h"

#include <cstring>

#include "base/check.h"

namespace muo::data {
namespace {

std::uint64_t word_at(const char* data, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, data, size);
  return word;
}

// Mixes eight bytes at a time; the last bytes may be mixed twice.
std::uint32_t hash_of(std::string_view bytes) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  std::uint64_t hash = bytes.size() * kOdd;
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
  };
  if (bytes.size() < 8) {
    mix(word_at(bytes.data(), bytes.size()));
  } else {
    for (std::size_t at = 0; at + 8 < bytes.size(); at += 8)
      mix(word_at(bytes.data() + at, 8));
    mix(word_at(bytes.data() + bytes.size() - 8, 8));
  }
  return static_cast<std::uint32_t>(hash * kOdd >> 32);
}

}  // namespace

void Vocabulary::add(std::string_view bytes, std::int32_t id) {
  MUO_CHECK(id >= 0 && !bytes.empty() && bytes_of(id).empty() && find(bytes) < 0,
            "cannot add token ", id);
  MUO_CHECK(bytes_.size() + bytes.size() < (1U << 31), "the vocabulary exceeds 2 GiB");
  if (2 * (count_ + 1) > static_cast<std::int64_t>(slots_.size())) grow();
  if (id >= id_count()) tokens_.resize(static_cast<std::size_t>(id) + 1);
  tokens_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(bytes_.size()),
                                           static_cast<std::uint32_t>(bytes.size())};
  bytes_ += bytes;
  const std::uint32_t hash = hash_of(bytes);
  slot_for(hash) = {hash, id};
  ++count_;
}

std::int32_t Vocabulary::find(std::string_view bytes) const {
  if (slots_.empty() || bytes.empty()) return -1;
  const std::size_t mask = slots_.size() - 1;
  const std::uint32_t hash = hash_of(bytes);
  for (std::size_t at = hash & mask; slots_[at].id >= 0; at = (at + 1) & mask)
    if (slots_[at].hash == hash && bytes_of(slots_[at].id) == bytes) return slots_[at].id;
  return -1;
}

std::string_view Vocabulary::bytes_of(std::int32_t id) const {
  if (id < 0 || id >= id_count()) return {};
  const Token token = tokens_[static_cast<std::size_t>(id)];
  return std::string_view(bytes_).substr(token.begin, token.size);
}

void Vocabulary::grow() {
  std::vector<Slot> old(slots_.empty() ? 1024 : 2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.id >= 0) slot_for(slot.hash) = slot;
}

Vocabulary::Slot& Vocabulary::slot_for(std::uint32_t hash) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].id >= 0)
    at = (at + 1) & mask;
  return slots_[at];
}

}  // namespace muo::data
