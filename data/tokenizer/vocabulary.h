#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// A bidirectional map between byte strings and ids.
class Vocabulary {
 public:
  // Adds an entry. `bytes` must not be empty; neither `bytes` nor `id` >= 0 may exist yet.
  void add(std::string_view bytes, std::int32_t id);
  [[nodiscard]] std::int32_t find(std::string_view bytes) const;  // -1 if not found
  // Empty if the id has no token.
  [[nodiscard]] std::string_view bytes_of(std::int32_t id) const;
  [[nodiscard]] std::int32_t id_count() const {  // one more than the largest id
    return static_cast<std::int32_t>(tokens_.size());
  }
  [[nodiscard]] std::int64_t size() const { return count_; }

 private:
  struct Token {
    std::uint32_t begin = 0, size = 0;  // range in bytes_
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = -1;
  };
  void grow();
  [[nodiscard]] Slot& slot_for(std::uint32_t hash);

  std::string bytes_;
  std::vector<Token> tokens_;
  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  std::int64_t count_ = 0;
};

}  // namespace muo::data
