#include "model/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/attention_choice.h"
#include "support/golden_model.h"

namespace muo::model {
namespace {

std::vector<AttentionDirection>& asked() {
  static std::vector<AttentionDirection> directions;
  return directions;
}

// cuDNN plans of a direction take a second each, so evaluations and decoders request only those of
// the forward direction.
TEST(Activations, WithoutBackwardNoPlanOfGradientsIsMade) {
  const AttentionBackend before = register_attention_backend(
      {.choose = [](const AttentionSize& /*size*/, AttentionDirection direction) {
        asked().push_back(direction);
        return AttentionChoice{};
      }});
  const auto asks_for_gradients = [](bool backward) {
    asked().clear();
    test::NanArena arena;
    const Activations activations(GptConfig(), {.b = 1, .t = 8, .backward = backward}, "", arena);
    EXPECT_TRUE(activations.workspace);
    EXPECT_TRUE(std::ranges::count(asked(), AttentionDirection::kForward) > 0);
    return std::ranges::count(asked(), AttentionDirection::kBackward) > 0;
  };
  EXPECT_TRUE(asks_for_gradients(true));
  EXPECT_FALSE(asks_for_gradients(false));
  static_cast<void>(register_attention_backend(before));
}

}  // namespace
}  // namespace muo::model
