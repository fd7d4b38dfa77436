#include "kernels/attention_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/environment.h"
#include "support/errors.h"

namespace muo {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using Kernels = AttentionChoice::Kernels;

constexpr auto kForward = AttentionDirection::kForward;
constexpr auto kBackward = AttentionDirection::kBackward;
constexpr std::int64_t kMiB = 1 << 20;

// The attention of depth 12 with T = 2048.
AttentionSize d12(std::int64_t rows) {
  return {.b = rows,
          .t = 2048,
          .heads = 6,
          .kv_heads = 6,
          .h = 128,
          .window = 2048,
          .scale = 0.1F,
          .dtype = DType::kBF16};
}

// cuDNN's answer, with its scratch.
LibraryAttention answer(const AttentionSize& size, AttentionDirection direction) {
  if (size.h % 8 != 0) return {.why_not = "the head size is not a multiple of 8"};
  if (direction == kForward) return {.why_not = {}, .workspace = 16};
  const std::int64_t rows = size.b * size.heads * size.t;
  return {.why_not = {},
          .workspace = size.method.deterministic ? 2 * rows * size.t : 4 * rows * size.h};
}

struct Choices {
  AttentionChoice forward, backward;
  [[nodiscard]] std::string text() const { return describe(forward, &backward); }
};
Choices choose(const AttentionSize& size, const AttentionAlignment& alignment = {},
               const std::string& why_not = "", bool warpgroups = false) {
  const auto one = [&](AttentionDirection direction) {
    return choose_attention(
        size, direction,
        [&] {
          return why_not.empty() ? answer(size, direction) : LibraryAttention{.why_not = why_not};
        },
        alignment, warpgroups);
  };
  return {one(kForward), one(kBackward)};
}
Choices choose(const AttentionSize& size, const std::string& why_not) {
  return choose(size, {}, why_not);
}

void expect_kernels(const Choices& got, Kernels forward, Kernels backward, const char* what) {
  EXPECT_EQ(got.forward.kernels, forward) << what << ": " << got.text();
  EXPECT_EQ(got.backward.kernels, backward) << what << ": " << got.text();
}

TEST(AttentionChoice, DirectionsAreChosenSeparately) {
  expect_kernels(choose(d12(16)), Kernels::kLibrary, Kernels::kLibrary, "0.75 GiB of scratch");
  expect_kernels(choose(d12(32)), Kernels::kLibrary, Kernels::kTensorCores, "1.5 GiB of scratch");
  AttentionSize size = d12(32);
  size.method.deterministic = false;
  expect_kernels(choose(size), Kernels::kLibrary, Kernels::kLibrary, "any order");
  EXPECT_EQ(choose(size).backward.workspace, 32 * 6 * 2048 * 128);
}

TEST(AttentionChoice, EveryCaseThatTheLibraryOrTensorCoresDoNotSupport) {
  struct Case {
    const char* what;
    std::function<void(AttentionSize&)> change;
    Kernels with_library, without;
    const char* why;
  };
  const auto nothing = [](AttentionSize&) {};
  for (const Case& c : {
           Case{"as it is", nothing, Kernels::kLibrary, Kernels::kTensorCores, "no library here"},
           Case{"fp32", [](AttentionSize& s) { s.dtype = DType::kF32; }, Kernels::kPortable,
                Kernels::kPortable, "tensors are fp32"},
           Case{"head size 20", [](AttentionSize& s) { s.h = 20; }, Kernels::kPortable,
                Kernels::kPortable, "head size 20 is not a multiple of 8 up to 128"},
           Case{"head size 136", [](AttentionSize& s) { s.h = 136; }, Kernels::kLibrary,
                Kernels::kPortable, "head size 136"},
           Case{"scale 0", [](AttentionSize& s) { s.scale = 0; }, Kernels::kLibrary,
                Kernels::kPortable, "scale 0 is not above 0"},
           Case{"documents", [](AttentionSize& s) { s.documents = true; }, Kernels::kTensorCores,
                Kernels::kTensorCores, "cuDNN does not support attention within documents"},
       }) {
    AttentionSize size = d12(4);
    c.change(size);
    expect_kernels(choose(size), c.with_library, c.with_library, c.what);
    const Choices without = choose(size, "no library here");
    expect_kernels(without, c.without, c.without, c.what);
    EXPECT_THAT(without.text(), HasSubstr(c.why));
  }
  // Whatever scratch it needs, the library is better than kernels without tensor cores.
  AttentionSize wide = d12(32);
  wide.h = 136;
  expect_kernels(choose(wide), Kernels::kLibrary, Kernels::kLibrary, "wide heads");
}

TEST(AttentionChoice, UnalignedViewsUseThePortableKernels) {
  expect_kernels(choose(d12(4), {.tensors = false}), Kernels::kPortable, Kernels::kPortable,
                 "tensors");
  expect_kernels(choose(d12(4), {.workspace = false}), Kernels::kTensorCores, Kernels::kTensorCores,
                 "workspace");
  // The scratch that is planned for the library is enough for the project's kernels.
  EXPECT_GE(choose(d12(4)).backward.workspace,
            choose(d12(4), {.tensors = false}).backward.workspace);
  EXPECT_EQ(choose(d12(4), {.tensors = false}).backward.workspace, 4 * 6 * 2048);
}

TEST(AttentionChoice, GradientsUseWarpgroupsIfTheGpuHasThem) {
  const auto on_hopper = [](const AttentionSize& size, const AttentionAlignment& alignment = {}) {
    return choose(size, alignment, "", true);
  };
  const Choices wide = on_hopper(d12(4));
  expect_kernels(wide, Kernels::kLibrary, Kernels::kWarpgroups, "heads of 128");
  EXPECT_EQ(wide.backward.workspace, 2 * 4 * 6 * 2048);
  EXPECT_EQ(wide.text(), "cuDNN, gradients by own kernels on Hopper's tensor cores");
  EXPECT_TRUE(fuses_rotary(wide.backward.kernels, 128));
  EXPECT_FALSE(fuses_rotary(wide.backward.kernels, 64));
  EXPECT_FALSE(fuses_rotary(Kernels::kTensorCores, 128));
  AttentionSize size = d12(4);
  size.t = 100;
  size.documents = true;
  EXPECT_EQ(on_hopper(size).backward.workspace, 3 * 4 * 6 * 128);
  expect_kernels(on_hopper(d12(4), {.workspace = false}), Kernels::kTensorCores,
                 Kernels::kTensorCores, "a workspace that begins anywhere");
  size = d12(4);
  size.h = 64;
  expect_kernels(on_hopper(size), Kernels::kLibrary, Kernels::kLibrary, "heads of 64");
  size.b = 32;
  expect_kernels(on_hopper(size), Kernels::kLibrary, Kernels::kWarpgroups, "1.5 GiB of scratch");
  size = d12(4);
  size.method.kernels = AttentionKernels::kCudnn;
  expect_kernels(on_hopper(size), Kernels::kLibrary, Kernels::kLibrary, "cudnn");
}

TEST(AttentionChoice, TheRequestedKernelsAreUsed) {
  const auto asked = [](AttentionKernels kernels, std::int64_t rows) {
    AttentionSize size = d12(rows);
    size.method.kernels = kernels;
    return size;
  };
  expect_kernels(choose(asked(AttentionKernels::kOwn, 4)), Kernels::kTensorCores,
                 Kernels::kTensorCores, "own");
  expect_kernels(choose(asked(AttentionKernels::kPortable, 4)), Kernels::kPortable,
                 Kernels::kPortable, "portable");
  expect_kernels(choose(asked(AttentionKernels::kCudnn, 32)), Kernels::kLibrary, Kernels::kLibrary,
                 "cudnn, at any scratch");
  AttentionSize size = asked(AttentionKernels::kOwn, 4);
  size.h = 20;
  expect_kernels(choose(size), Kernels::kPortable, Kernels::kPortable, "own, without tensor cores");
}

TEST(AttentionChoice, CudnnThatCannotBeUsedIsAnErrorWithTheReason) {
  AttentionSize size = d12(4);
  size.method.kernels = AttentionKernels::kCudnn;
  EXPECT_EQ(message_of<InputError>([&] { choose(size, "it does not load"); }),
            "attention cudnn (--attention, MUO_ATTENTION): it does not load: give auto, own or "
            "portable");
  EXPECT_THAT(message_of<InputError>([&] { choose(size, {.tensors = false}); }),
              HasSubstr("does not begin at a multiple of 16 bytes"));
  size.dtype = DType::kF32;
  EXPECT_THAT(message_of<InputError>([&] { choose(size); }),
              HasSubstr("cuDNN does not support attention in fp32"));
  size = d12(4);
  size.method.kernels = AttentionKernels::kCudnn;
  size.documents = true;
  EXPECT_THAT(
      message_of<InputError>([&] { choose(size); }),
      HasSubstr("attention cudnn (--attention, MUO_ATTENTION): cuDNN does not support attention "
                "within documents: give auto, own or portable"));
}

TEST(AttentionChoice, TheLibraryIsQueriedOnlyIfItsAnswerMatters) {
  const auto asks = [](AttentionSize size, AttentionKernels kernels) {
    size.method.kernels = kernels;
    int count = 0;
    choose_attention(
        size, kBackward,
        [&] {
          ++count;
          return LibraryAttention{};
        },
        {}, false);
    return count;
  };
  EXPECT_EQ(asks(d12(4), AttentionKernels::kAuto), 1);
  EXPECT_EQ(asks(d12(4), AttentionKernels::kOwn), 0);
  EXPECT_EQ(asks(d12(4), AttentionKernels::kPortable), 0);
  AttentionSize fp32 = d12(4);
  fp32.dtype = DType::kF32;
  EXPECT_EQ(asks(fp32, AttentionKernels::kAuto), 0);
  AttentionSize documents = d12(4);
  documents.documents = true;
  EXPECT_EQ(asks(documents, AttentionKernels::kAuto), 0);
}

TEST(AttentionChoice, IsDescribedInOneLine) {
  EXPECT_EQ(choose(d12(16)).text(), "cuDNN (deterministic gradients take 768 MiB of scratch)");
  EXPECT_EQ(choose(d12(32)).text(),
            "cuDNN, gradients by own kernels on tensor cores (cuDNN's deterministic gradients take "
            "1536 MiB of scratch, more than 1024)");
  AttentionSize size = d12(32);
  size.method.deterministic = false;
  EXPECT_EQ(choose(size).text(), "cuDNN (gradients take 192 MiB of scratch)");
  EXPECT_EQ(choose(d12(4), "it does not load").text(),
            "own kernels on tensor cores (it does not load)");
  size.dtype = DType::kF32;
  EXPECT_EQ(choose(size).text(), "own kernels in fp32 (tensors are fp32)");
  EXPECT_EQ(describe(choose(d12(16)).forward, nullptr), "cuDNN");
  EXPECT_EQ(describe(choose(d12(4), "it does not load").forward, nullptr),
            "own kernels on tensor cores (it does not load)");
}

// Replaces the registered backend during its lifetime.
class RecordingBackend {
 public:
  RecordingBackend() { asked().clear(); }
  ~RecordingBackend() { static_cast<void>(register_attention_backend(before_)); }
  RecordingBackend(const RecordingBackend&) = delete;
  RecordingBackend& operator=(const RecordingBackend&) = delete;

  static std::vector<AttentionDirection>& asked() {
    static std::vector<AttentionDirection> directions;
    return directions;
  }

 private:
  AttentionBackend before_ = register_attention_backend(
      {.choose = [](const AttentionSize& /*size*/, AttentionDirection direction) {
        asked().push_back(direction);
        return AttentionChoice{.workspace = std::int64_t{direction == kForward ? 1000 : 2000} << 20,
                               .why = {}};
      }});
};

TEST(AttentionChoice, WithoutGradientsTheirKernelsAreNotQueried) {
  const RecordingBackend backend;
  AttentionSize size = d12(1);
  EXPECT_EQ(attention_workspace(size), 2000 * kMiB);
  EXPECT_THAT(RecordingBackend::asked(), ElementsAre(kForward, kBackward));
  RecordingBackend::asked().clear();
  size.backward = false;
  EXPECT_EQ(attention_workspace(size), 1000 * kMiB);
  EXPECT_EQ(describe_attention(size), "own kernels in fp32");
  EXPECT_THAT(RecordingBackend::asked(), ElementsAre(kForward, kForward));
}

TEST(AttentionKernels, AreNamedByTheEnvironment) {
  test::ScopedEnvironment kernels("MUO_ATTENTION", std::nullopt);
  EXPECT_EQ(attention_kernels_of_environment(), AttentionKernels::kAuto);
  for (const std::string_view name : kNames<AttentionKernels>) {
    kernels.set(std::string(name));
    EXPECT_EQ(
        kNames<AttentionKernels>[static_cast<std::size_t>(attention_kernels_of_environment())],
        name);
  }
  kernels.set("flash");
  EXPECT_EQ(message_of<InputError>([] { attention_kernels_of_environment(); }),
            "MUO_ATTENTION: 'flash' is unknown: give auto, cudnn, own, portable");
}

}  // namespace
}  // namespace muo
