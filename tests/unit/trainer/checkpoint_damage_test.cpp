#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/checkpoint_state.h"
#include "support/files.h"
#include "trainer/checkpoint/checkpoint.h"

// Any damage to the bytes of a checkpoint is detected or harmless.
namespace muo::trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

constexpr std::uint64_t kSeed = 11;

enum class Fate : std::uint8_t { kDetected, kHarmless, kWrong };

// Result of loading the checkpoint to resume a run.
Fate fate_of(const fs::path& path) {
  try {
    const Checkpoint checkpoint(path);
    return test::wrong_after_load(checkpoint, 2, kSeed).empty() && checkpoint.info().step == 3
               ? Fate::kHarmless
               : Fate::kWrong;
  } catch (const InputError&) {
    return Fate::kDetected;
  }
}

// Calls damage(bytes, i) for every `stride`th i in [0, size) of each file. Returns the number of
// harmless damages.
template <class Damage>
std::size_t expect_no_harm(std::size_t stride, const Damage& damage) {
  const TemporaryDirectory run;
  test::save_state(run.path(), 2, 3, kSeed);
  const fs::path path = checkpoint_directory(run.path(), 3);
  std::size_t harmless = 0;
  for (const char* const name : {kManifestName, kCheckpointFiles[0], kCheckpointFiles[1]}) {
    const std::string whole = test::read_file(path / name);
    EXPECT_GT(whole.size(), 500U);
    for (std::size_t i = 0; i < whole.size(); i += stride) {
      std::string bytes = whole;
      damage(bytes, i);
      test::write_file(path / name, bytes);
      const Fate fate = fate_of(path);
      EXPECT_NE(fate, Fate::kWrong) << name << " at " << i << " of " << whole.size();
      harmless += fate == Fate::kHarmless ? 1 : 0;
    }
    test::write_file(path / name, whole);
    EXPECT_EQ(fate_of(path), Fate::kHarmless);
    fs::remove(path / name);
    EXPECT_EQ(fate_of(path), Fate::kDetected) << "without " << name;
    test::write_file(path / name, whole);
  }
  return harmless;
}

void flip_a_bit(std::string& bytes, std::size_t i) {
  bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
}
void flip_all_bits(std::string& bytes, std::size_t i) { bytes[i] = static_cast<char>(~bytes[i]); }
void cut(std::string& bytes, std::size_t i) { bytes.resize(i); }

// Padding bytes between tensors are harmless.
constexpr std::size_t kPadding = 8;

TEST(CheckpointDamage, IsDetectedOrHarmless) {
  EXPECT_LE(expect_no_harm(13, flip_a_bit), kPadding);
  EXPECT_EQ(expect_no_harm(29, cut), 0U);
}

TEST(SlowCheckpointDamage, OfEveryByteAndLengthIsDetectedOrHarmless) {
  if (std::getenv("MUO_SLOW") == nullptr)  // NOLINT(concurrency-mt-unsafe): one thread
    GTEST_SKIP() << "scripts/test.sh --slow runs it";
  EXPECT_LE(expect_no_harm(1, flip_a_bit), kPadding);
  EXPECT_LE(expect_no_harm(1, flip_all_bits), kPadding);
  EXPECT_EQ(expect_no_harm(1, cut), 0U);
}

}  // namespace
}  // namespace muo::trainer
