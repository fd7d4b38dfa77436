#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

#include "support/environment.h"

namespace muo::test {

// Selects which of many similar cases run: all of them, unless MUO_DRAW is set, as scripts/test.sh
// --gate does. A number selects one of every `of` cases, and different cases for each number;
// `none` selects no case, to find out which planted faults other tests detect.
//   Drawn drawn(4);
//   for (...) if (drawn.runs_next()) ...
// Cases that alone detect a planted fault are not drawn, but always run.
class Drawn {
 public:
  explicit Drawn(std::uint64_t of) : of_(of) {
    const std::optional<std::string> draw = environment("MUO_DRAW");
    if (!draw) of_ = 1;
    if (draw == "none") of_ = 0;
    if (draw) std::from_chars(draw->data(), draw->data() + draw->size(), case_);
  }

  [[nodiscard]] bool runs_next(bool always = false) {
    const bool is_drawn = of_ != 0 && case_++ % of_ == 0;
    return always || is_drawn;
  }

 private:
  std::uint64_t of_, case_ = 0;
};

}  // namespace muo::test
