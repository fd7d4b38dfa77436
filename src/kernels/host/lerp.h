#pragma once

namespace muo::host {

// PyTorch's lerp, whose form depends on the weight: a + w (b - a) for w < 0.5, otherwise
// b - (b - a) (1 - w). The form is chosen once, so that loops over elements have no branch: both
// forms are base + factor (b - a), where base is a or b.
class Lerp {
 public:
  explicit Lerp(float weight)
      : from_a_(weight < 0.5F ? 1.0F : 0.0F), factor_(weight < 0.5F ? weight : weight - 1.0F) {}
  float operator()(float a, float b) const { return (from_a_ != 0.0F ? a : b) + factor_ * (b - a); }

 private:
  float from_a_;
  float factor_;
};

}  // namespace muo::host
