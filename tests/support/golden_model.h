#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/gpt.h"
#include "support/golden.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo::test {

// Every tensor has its own memory, filled with NaN, so that reads of unwritten
// elements are detected.
class NanArena final : public Arena {
 public:
  Tensor tensor(const TensorSpec& spec) override {
    memory_.emplace_back(spec.shape, spec.dtype);
    if (spec.dtype == DType::kF32 || spec.dtype == DType::kBF16)
      std::fill_n(memory_.back().tensor().data, memory_.back().tensor().bytes(), std::byte{0xFF});
    return memory_.back();
  }

 private:
  std::vector<HostTensor> memory_;
};

// The configuration in the metadata of a golden file; extras that it does not mention are off.
model::GptConfig config_of(const Golden& golden);

// A golden file tests/golden/NAME.safetensors with a forward and backward pass, and a model with
// the configuration, weights and batch of the file.
class GoldenModel {
 public:
  // `change` is applied to the configuration before anything is built from it.
  explicit GoldenModel(const std::string& name,
                       const std::function<void(model::GptConfig&)>& change = {});

  [[nodiscard]] const Golden& golden() const { return golden_; }
  [[nodiscard]] const model::GptConfig& config() const { return config_; }
  [[nodiscard]] const std::vector<ParamSpec>& specs() const { return specs_; }
  [[nodiscard]] HostTensor& weight(std::string_view name);
  [[nodiscard]] const Tensor& gradient(std::size_t param) const { return gradients_[param]; }

  // A Gpt refers to the configuration in this object, so the object must not move.
  GoldenModel(const GoldenModel&) = delete;
  GoldenModel& operator=(const GoldenModel&) = delete;
  ~GoldenModel() = default;
  model::Gpt make_gpt(bool backward);

  // Runs forward and backward of `scale` times the mean loss.
  void run(const model::Gpt& gpt, float scale, bool accumulate,
           const std::function<void(std::size_t)>& ready = {});
  // Runs only forward and losses.
  void evaluate(const model::Gpt& gpt);
  [[nodiscard]] double mean_loss(const model::Gpt& gpt) const;  // over targets that are not ignored
  // Call after forward(). Returns the logits of the positions in the file.
  [[nodiscard]] std::vector<float> logits(const model::Gpt& gpt);

 private:
  Golden golden_;
  model::GptConfig config_;
  std::vector<ParamSpec> specs_;
  std::int64_t batch_, t_;
  HostTensor inputs_, targets_;
  double counted_ = 0;  // number of targets that are not ignored
  KernelStream stream_;
  NanArena arena_;
  std::vector<HostTensor> weights_;
  std::vector<Tensor> weight_views_, gradients_;
  model::RotaryTables rotary_;
};

}  // namespace muo::test
