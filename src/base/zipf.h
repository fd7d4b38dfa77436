#pragma once

#include <cmath>
#include <cstdint>

namespace muo {

// Draws a token whose frequencies follow Zipf's law, as in text: token k has probability ln((k + 2)
// / (k + 1)) / ln(vocab + 1). `uniform` is a draw that is uniform in [0, 1).
inline std::int32_t zipf_token(float uniform, std::int64_t vocab) {
  return static_cast<std::int32_t>(
             std::pow(static_cast<double>(vocab + 1), static_cast<double>(uniform))) -
         1;
}

}  // namespace muo
