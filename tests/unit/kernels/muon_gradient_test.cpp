#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "kernels/muon.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/muon_cases.h"
#include "support/sanitized.h"
#include "support/split_tensor.h"
#include "support/tensors.h"
#include "support/unaligned.h"

// Muon with bf16 gradients.
namespace muo::test {
namespace {

// bf16 gradients give the same bits as equal fp32 values, at any address.
TEST(MuonInput, AGradientOfBF16GivesTheBitsOfEqualFp32Values) {
  const MuonScalars scalars;
  for (const Shape& shape : muon_shapes()) {
    if (kThreadSanitizer && shape.numel() > 500) continue;  // takes half a minute
    const HostTensor narrow = random_tensor(shape, "grad").rounded(DType::kBF16);
    const HostTensor wide = narrow.widened();
    const Unaligned elsewhere(narrow);
    struct Result {
      std::vector<double> x, norms;
      bool operator==(const Result&) const = default;
    };
    for (const DType type_of_x : {DType::kF32, DType::kBF16})
      for (const auto& type_of_momentum :
           {std::optional<DType>(), std::optional(DType::kF32), std::optional(DType::kBF16)}) {
        const HostTensor momentum =
            random_tensor(shape, "momentum").rounded(type_of_momentum.value_or(DType::kF32));
        const auto input = [&](const Tensor& grad) {
          const HostTensor x(shape, type_of_x), norms({shape[0], shape[1]});
          KernelStream stream;
          muon_input(stream, {.x = x,
                              .row_norms = norms,
                              .grad = grad,
                              .momentum = type_of_momentum ? momentum : Tensor{},
                              .scalars = scalars.tensor});
          return Result{x.doubles(), norms.doubles()};
        };
        EXPECT_TRUE(input(narrow) == input(wide)) << shape.text();
        EXPECT_TRUE(input(elsewhere) == input(Unaligned(wide))) << shape.text();
        if (!type_of_momentum) continue;
        const auto nesterov = [&](const Tensor& grad) {
          const HostTensor x(shape);
          KernelStream stream;
          muon_nesterov(stream,
                        {.x = x, .grad = grad, .momentum = momentum, .scalars = scalars.tensor});
          return x.doubles();
        };
        const std::vector<double> want = nesterov(wide);
        EXPECT_EQ(nesterov(narrow), want) << shape.text();
        EXPECT_EQ(nesterov(elsewhere), want) << shape.text();
      }
  }
}

TEST(MuonCommit, AGradientOfBF16GivesTheBitsOfEqualFp32Values) {
  const MuonScalars scalars;
  scalars.tensor.tensor().as_struct<StepScalars>()->gradient_scale = 0.375F;
  const std::int64_t n = 381;  // whole accesses and a remainder
  const HostTensor narrow = random_tensor({n}, "grad").rounded(DType::kBF16);
  const HostTensor wide = narrow.widened();
  struct State {
    std::vector<double> weight, momentum;
    bool operator==(const State&) const = default;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const bool splits : {false, true}) {
      const auto commit = [&](const Tensor& grad) {
        const HostTensor weight = random_tensor({n}, "weight"), u = random_tensor({n}, "u");
        const HostTensor momentum = random_tensor({n}, "momentum").rounded(dtype);
        const SplitTensor split(weight);
        KernelStream stream;
        muon_commit(stream, {.weight = splits ? split.lower : weight,
                             .replica = splits ? split.upper : Tensor{},
                             .momentum = momentum,
                             .u = u,
                             .grad = grad,
                             .scalars = scalars.tensor,
                             .rounding = {.random = CounterRandom(0, "c_fc"), .begin = 100}});
        return State{splits ? split.joined().doubles() : weight.doubles(), momentum.doubles()};
      };
      const State want = commit(wide);
      EXPECT_TRUE(commit(narrow) == want) << name_of(dtype) << splits;
      EXPECT_TRUE(commit(Unaligned(narrow)) == want) << name_of(dtype) << splits;
    }
}

TEST(Muon, RefusesGradientsOfOtherTypes) {
  KernelStream stream;
  const MuonScalars scalars;
  const HostTensor x({1, 6, 12}), norms({1, 6}), grad({72}, DType::kU16);
  const auto refuses = [](std::string_view operation, const auto& call) {
    EXPECT_THAT(message_of<Error>(call),
                ::testing::HasSubstr(concat(operation, ": grad is uint16, expected fp32")));
  };
  refuses("muon_nesterov", [&] {
    muon_nesterov(stream, {.x = x, .grad = grad, .momentum = x, .scalars = scalars.tensor});
  });
  refuses("muon_input", [&] {
    muon_input(stream, {.x = x, .row_norms = norms, .grad = grad, .scalars = scalars.tensor});
  });
  refuses("muon_commit", [&] {
    muon_commit(stream,
                {.weight = x, .momentum = x, .u = x, .grad = grad, .scalars = scalars.tensor});
  });
}

}  // namespace
}  // namespace muo::test
