#include "trainer/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "support/checkpoint_state.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "trainer/checkpoint/checkpoint_saver.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/checkpoint/run_tokenizer.h"

namespace muo::trainer {
namespace {

using test::HostTensor;
using test::message_of;
using test::names_in;
using test::RankState;
using test::read_file;
using test::save_state;
using test::TemporaryDirectory;
using test::write_file;
using test::wrong_after_load;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const std::filesystem::path& path, const OpenCheckpoint& options = {}) {
  return message_of<InputError>([&] { const Checkpoint checkpoint(path, options); });
}

TEST(TensorChecksum, IsTheSumOfSplitMix64Outputs) {
  // The first two outputs of seed 0 and of seed 1234567, from the published test vectors.
  const std::vector<std::uint64_t> zeros = {0, 0};
  EXPECT_EQ(tensor_checksum(DType::kF64, 0, std::as_bytes(std::span(zeros))),
            0xE220A8397B1DCDAFU + 0x6E789E6AA1B965F4U);
  const std::vector<std::uint32_t> seeds = {1234567, 1234567};
  EXPECT_EQ(tensor_checksum(DType::kF32, 0, std::as_bytes(std::span(seeds))),
            6457827717110365317U + 3203168211198807973U);
}

TEST(TensorChecksum, AddsUpOverPartsAndDependsOnOrder) {
  const HostTensor tensor = test::random_tensor({100}, "x");
  const auto part = [&tensor](std::int64_t begin, std::int64_t end) {
    const auto bytes = std::as_bytes(tensor.values());
    return tensor_checksum(DType::kF32, begin,
                           bytes.subspan(static_cast<std::size_t>(4 * begin),
                                         static_cast<std::size_t>(4 * (end - begin))));
  };
  const std::uint64_t whole = part(0, 100);
  EXPECT_EQ(whole, part(0, 33) + part(33, 34) + part(34, 100));
  std::swap(tensor.values()[20], tensor.values()[21]);
  EXPECT_NE(whole, part(0, 100));
}

TEST(Checkpoint, IsReadBitwiseByAnyWorldWhateverWorldWroteIt) {
  for (int writers = 1; writers <= 5; ++writers) {
    const TemporaryDirectory run;
    save_state(run.path(), writers, 100, 7);
    EXPECT_THAT(names_in(run.path() / "checkpoints"), ElementsAre("step_00000100"));
    const Checkpoint checkpoint(run.path());
    EXPECT_EQ(checkpoint.info().world, writers);
    for (int readers = 1; readers <= 5; ++readers)
      EXPECT_THAT(wrong_after_load(checkpoint, readers, 7), IsEmpty()) << writers << " " << readers;
    EXPECT_FALSE(wrong_after_load(checkpoint, 1, 8).empty());
  }
}

TEST(Checkpoint, TensorFilesDoNotDependOnTheWorld) {
  const TemporaryDirectory one;
  const TemporaryDirectory four;
  save_state(one.path(), 1, 3, 7);
  save_state(four.path(), 4, 3, 7);
  for (const char* const file : kCheckpointFiles)
    EXPECT_EQ(read_file(checkpoint_directory(one.path(), 3) / file),
              read_file(checkpoint_directory(four.path(), 3) / file));
}

// Python's package `safetensors` 0.8.0 reads both files with these names, types and shapes.
TEST(Checkpoint, KeepsOptimizerStateApartFromTheModel) {
  const TemporaryDirectory run;
  save_state(run.path(), 2, 3, 7);
  for (std::size_t f = 0; f < kCheckpointFiles.size(); ++f) {
    const SafetensorsFile file(checkpoint_directory(run.path(), 3) / kCheckpointFiles[f]);
    std::size_t expected = 0;
    for (const SafetensorsSpec& spec : test::kStateTensors) {
      const bool state = spec.name.ends_with("adam_m") || spec.name.ends_with("adam_v") ||
                         spec.name.ends_with("momentum") || spec.name.ends_with("variance");
      if (state != (f == 1)) continue;
      ++expected;
      const SafetensorsEntry* const entry = file.find(spec.name);
      ASSERT_NE(entry, nullptr) << spec.name;
      EXPECT_EQ(entry->spec.shape, spec.shape);
      EXPECT_EQ(entry->spec.dtype, spec.dtype);
    }
    EXPECT_EQ(file.entries().size(), expected);
  }
}

TEST(Checkpoint, KeepsTheInformationAboutTheRun) {
  const TemporaryDirectory run;
  CheckpointSaver saver(run.path(), 2);
  const CheckpointInfo info = {
      .step = 123456789,
      .updates = 123456780,
      .seed = ~std::uint64_t{0},
      .rows = std::int64_t{1} << 40,
      .tokens = std::int64_t{1} << 52,
      .statistics = {.loss = {.count = 128, .mean = 0.1, .variance = 1e-30},
                     .grad_norm = {.count = 7, .mean = 1.0 / 3}},
      .clock = BudgetClock{.budget = 0.1,
                           .spent = 1.0 / 7,
                           .pace = {.from = 9, .position = 1.0 / 3, .per_step = 1e-300}},
      .data = R"({"checksum":"0000000000000000","files":["a\nb"]})",
      .config = R"({"checksum":"0000000000000000","depth":4,"lr":0.02})"};
  save_state(saver, 2, info, 1);
  const Checkpoint checkpoint(run.path());
  EXPECT_EQ(checkpoint.path(), run.path() / "checkpoints" / "step_123456789");
  EXPECT_EQ(checkpoint.info().step, info.step);
  EXPECT_EQ(checkpoint.info().updates, info.updates);
  EXPECT_EQ(checkpoint.info().seed, info.seed);
  const LossStatistics& seen = checkpoint.info().statistics;
  EXPECT_EQ(seen.loss.count, 128);
  EXPECT_EQ(seen.loss.mean, 0.1);
  EXPECT_EQ(seen.loss.variance, 1e-30);
  EXPECT_EQ(seen.grad_norm.count, 7);
  EXPECT_EQ(seen.grad_norm.mean, 1.0 / 3);
  const BudgetClock clock = checkpoint.info().clock.value();
  EXPECT_EQ(clock.budget, info.clock->budget);
  EXPECT_EQ(clock.spent, info.clock->spent);
  EXPECT_EQ(clock.pace, info.clock->pace);
  EXPECT_EQ(checkpoint.info().rows, info.rows);
  EXPECT_EQ(checkpoint.info().tokens, info.tokens);
  EXPECT_EQ(checkpoint.info().data, info.data);
  EXPECT_EQ(checkpoint.info().config, info.config);
  EXPECT_THAT(message_of<Error>([&] { save_state(saver, 2, {.config = "[1]"}, 1); }),
              HasSubstr("not a JSON object: [1]"));
  CheckpointInfo without = info;
  without.clock.reset();
  EXPECT_FALSE(parse_manifest(manifest_text({.info = without, .files = {}}), "file").info.clock);
  without.clock = BudgetClock{.pace = {.from = 1, .position = 1.5}};
  EXPECT_THAT(message_of<InputError>(
                  [&] { parse_manifest(manifest_text({.info = without, .files = {}}), "f"); }),
              HasSubstr("has a position outside of 0 to 1"));
}

TEST(Checkpoint, LoadsFullReplicasOfTheWeights) {
  const TemporaryDirectory run;
  save_state(run.path(), 3, 1, 7);
  std::filesystem::remove(checkpoint_directory(run.path(), 1) / kCheckpointFiles[1]);
  EXPECT_THAT(refusal(run.path()),
              HasSubstr("optimizer.safetensors: cannot be read: No such file"));
  const Checkpoint checkpoint(run.path(), {.weights_only = true});

  std::vector<ParamSpec> params;
  std::vector<HostTensor> replicas;
  for (const SafetensorsSpec& spec : test::kStateTensors) {
    if (checkpoint_file_of(spec.name) != 0) continue;
    params.push_back({.name = spec.name, .shape = spec.shape});
    replicas.emplace_back(spec.shape, spec.dtype);
  }
  test::KernelStream stream;
  const auto weight = [&replicas](std::size_t i) { return replicas[i].tensor(); };
  checkpoint.load_weights(stream, params, weight);
  RankState state(0, 1);
  state.fill(7);
  for (const StateEntry& entry : state.entries()) {
    const auto found = std::ranges::find(params, entry.name, &ParamSpec::name);
    if (found == params.end()) continue;
    const Tensor& replica = replicas[static_cast<std::size_t>(found - params.begin())].tensor();
    EXPECT_TRUE(std::equal(replica.data, replica.data + replica.bytes(), entry.values.data))
        << entry.name;
  }

  EXPECT_THROW(checkpoint.load(stream, state.entries()), Error);  // needs optimizer state
  const std::string dropped = params.back().name;
  params.pop_back();
  EXPECT_THAT(message_of<InputError>([&] { checkpoint.load_weights(stream, params, weight); }),
              HasSubstr("has the tensor " + dropped + ", which this model does not have"));
}

TEST(Checkpoint, RejectsTensorsThatDoNotFitNamingTheDifference) {
  const TemporaryDirectory run;
  save_state(run.path(), 1, 1, 7);
  const Checkpoint checkpoint(run.path());
  test::KernelStream stream;
  const auto message = [&](const std::string& name, const Shape& shape, DType dtype) {
    const HostTensor values({shape.numel()}, dtype);
    const std::vector<StateEntry> entries = {{.name = name, .shape = shape, .values = values}};
    return message_of<InputError>([&] { checkpoint.load(stream, entries); });
  };
  EXPECT_EQ(message("transformer.wte.weight", {13, 6}, DType::kF32), "no exception");
  EXPECT_THAT(message("transformer.wpe.weight", {13, 6}, DType::kF32),
              HasSubstr("model.safetensors lacks the tensor transformer.wpe.weight"));
  EXPECT_THAT(message("transformer.wte.weight", {6, 13}, DType::kF32),
              HasSubstr("has transformer.wte.weight as fp32 (13, 6), this run needs fp32 "
                        "(6, 13)"));
  EXPECT_THAT(message("transformer.wte.weight", {13, 6}, DType::kI32), HasSubstr("needs int32"));
}

TEST(Checkpoint, ConvertsFp32AndBf16) {
  const TemporaryDirectory run;
  save_state(run.path(), 1, 1, 7);
  const Checkpoint checkpoint(run.path());
  test::KernelStream stream;
  constexpr std::int64_t kBegin = 5;
  const HostTensor wide({40}, DType::kF32);
  const HostTensor narrow({40}, DType::kBF16);
  for (const HostTensor* values : {&wide, &narrow}) {
    const std::vector<StateEntry> entries = {
        {.name = "transformer.wte.weight", .shape = {13, 6}, .begin = kBegin, .values = *values}};
    checkpoint.load(stream, entries);
  }
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_NE(wide.values()[i], 0.0F);
    EXPECT_EQ(narrow.values<BF16>()[i].bits, to_bf16(wide.values()[i]).bits);
  }
}

TEST(Checkpoint, OpensDirectoriesOfCheckpointsAndRuns) {
  const TemporaryDirectory run;
  EXPECT_THAT(refusal(run.path()), HasSubstr("neither a checkpoint"));
  EXPECT_THAT(refusal(run.path() / "absent"), HasSubstr("neither a checkpoint"));
  for (const std::int64_t step : {9, 100, 20})
    save_state(run.path(), 1, step, static_cast<std::uint64_t>(step));
  std::filesystem::create_directory(run.path() / "checkpoints" / "step_99999999x");
  std::filesystem::create_directory(run.path() / "checkpoints" / ".step_00000200.tmp-1");
  EXPECT_EQ(Checkpoint(run.path()).info().step, 100);
  EXPECT_EQ(Checkpoint(checkpoint_directory(run.path(), 9)).info().step, 9);
  const std::filesystem::path folder = run.path() / "checkpoints";
  for (const char* const name : {"step_20", "step_00000020/", "step_00000020/model.safetensors"})
    EXPECT_EQ(Checkpoint(folder / name).info().step, 20) << name;
  EXPECT_EQ(Checkpoint(folder).info().step, 100);
  EXPECT_THAT(refusal(folder / "step_21"), HasSubstr("neither a checkpoint"));
}

TEST(Checkpoint, DetectsAnyFlippedBit) {
  const TemporaryDirectory run;
  save_state(run.path(), 2, 1, 7);
  const auto directory = checkpoint_directory(run.path(), 1);
  ASSERT_EQ(refusal(directory), "no exception");
  for (const char* const name : {kCheckpointFiles[0], kCheckpointFiles[1], kManifestName}) {
    const std::string original = read_file(directory / name);
    for (std::size_t at = 0; at < original.size(); at += at < 16 ? 1 : 5) {
      std::string damaged = original;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      write_file(directory / name, damaged);
      ASSERT_THAT(refusal(directory), HasSubstr(name)) << at;
    }
    write_file(directory / name, original);
  }
  ASSERT_EQ(refusal(directory), "no exception");
}

TEST(Checkpoint, DetectsTruncatedAndMissingFiles) {
  const TemporaryDirectory run;
  save_state(run.path(), 2, 1, 7);
  const auto directory = checkpoint_directory(run.path(), 1);
  for (const char* const name : {kCheckpointFiles[0], kCheckpointFiles[1], kManifestName}) {
    const std::string original = read_file(directory / name);
    for (const std::size_t size :
         {original.size() - 1, original.size() / 2, std::size_t{7}, std::size_t{0}}) {
      write_file(directory / name, original.substr(0, size));
      EXPECT_THAT(refusal(directory, {.verify = false}), HasSubstr(name)) << size;
    }
    write_file(directory / name, original + "x");
    EXPECT_THAT(refusal(directory, {.verify = false}), HasSubstr(name));
    std::filesystem::remove(directory / name);
    EXPECT_NE(refusal(directory, {.verify = false}), "no exception");
    write_file(directory / name, original);
  }
  EXPECT_EQ(refusal(directory), "no exception");
}

TEST(Checkpoint, AutomaticResumeSkipsDamagedOnesAndNamesThem) {
  const TemporaryDirectory run;
  std::vector<std::string> skipped;
  EXPECT_FALSE(newest_checkpoint(run.path(), skipped));
  for (const std::int64_t step : {1, 2, 3})
    save_state(run.path(), 2, step, static_cast<std::uint64_t>(step));

  const auto model = [&](std::int64_t step) {
    return checkpoint_directory(run.path(), step) / kCheckpointFiles[0];
  };
  std::string damaged = read_file(model(3));
  damaged[damaged.size() - 9] = static_cast<char>(damaged[damaged.size() - 9] ^ 1);
  write_file(model(3), damaged);
  const std::optional<Checkpoint> found = newest_checkpoint(run.path(), skipped);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->info().step, 2);
  EXPECT_THAT(wrong_after_load(*found, 3, 2), IsEmpty());
  EXPECT_THAT(skipped,
              ElementsAre(testing::AllOf(HasSubstr(checkpoint_directory(run.path(), 3).string()),
                                         HasSubstr("does not match its checksum"))));
  // Given explicitly, so it is not skipped.
  EXPECT_THAT(refusal(run.path()), HasSubstr("step_00000003"));

  write_file(model(2), "");
  std::filesystem::remove(checkpoint_directory(run.path(), 1) / kManifestName);
  skipped.clear();
  EXPECT_THAT(message_of<InputError>([&] { newest_checkpoint(run.path(), skipped); }),
              HasSubstr("every checkpoint in"));
  EXPECT_EQ(skipped.size(), 3U);
}

// The manifest with a corrected checksum, so that later checks are reached.
std::string resigned(std::string manifest) {
  const std::string key = "\"checksum\": \"";
  const std::size_t at = manifest.find(key);
  if (at == std::string::npos || at + key.size() + 16 > manifest.size()) return manifest;
  manifest.replace(at + key.size(), 16, 16, '0');
  const std::uint64_t sum =
      tensor_checksum(DType::kBytes, 0, std::as_bytes(std::span<const char>(manifest)));
  std::ostringstream digits;
  digits << std::hex << std::setw(16) << std::setfill('0') << sum;
  return manifest.replace(at + key.size(), 16, digits.str());
}

TEST(Manifest, OfAnotherVersionIsRejectedByNumber) {
  const TemporaryDirectory run;
  save_state(run.path(), 1, 1, 7);
  const auto path = checkpoint_directory(run.path(), 1) / kManifestName;
  std::string text = read_file(path);
  const std::string version = "\"version\": 1";
  write_file(path, resigned(text.replace(text.find(version), version.size(), "\"version\": 2")));
  EXPECT_THAT(refusal(run.path()), HasSubstr("has format version 2; this program reads version 1"));
}

TEST(Manifest, SurvivesRandomDamage) {
  const TemporaryDirectory run;
  save_state(run.path(), 1, 1, 7);
  const auto path = checkpoint_directory(run.path(), 1) / kManifestName;
  const std::string original = read_file(path);
  ASSERT_EQ(resigned(original), original);
  constexpr int kTrials = 400;
  int refused = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const CounterRandom random(static_cast<std::uint64_t>(trial), "damage");
    std::string damaged = original;
    const std::size_t at = random.bits(0) % damaged.size();
    const std::string_view words[] = {"0", "-", "9", "\"", "[", "}", ":", ",", "e9", "null", "{}"};
    const std::string_view word = words[random.bits(1) % std::size(words)];
    if (random.bits(2) % 2 == 0)
      damaged.insert(at, word);
    else
      damaged.replace(at, word.size(), word);
    write_file(path, resigned(damaged));
    refused += refusal(run.path()) == "no exception" ? 0 : 1;
  }
  EXPECT_GT(refused, kTrials / 2);
  EXPECT_LT(refused, kTrials);  // other damage, such as another digit of the seed, is valid
}

// The tokenizer's file no longer exists, and a run on shards does not record its path.
TEST(RunTokenizer, IsTheByteTokenizerOnlyIfNoOtherWasUsed) {
  struct Row {
    std::int64_t vocab_size;
    const char* data;
    const char* tokenizer;
  };
  for (const Row& row :
       {Row{257, "{}", "byte"}, Row{257, R"({"tokenizer":"0123"})", ""}, Row{258, "{}", ""}}) {
    const model::GptConfig model = {.vocab_size = row.vocab_size};
    TrainOptions options;
    options.model.set_all(model);
    const TemporaryDirectory run;
    CheckpointSaver saver(run.path(), 1);
    save_state(saver, 1, {.data = row.data, .config = checkpoint_config(model, options)}, 1);
    EXPECT_EQ(find_run_tokenizer(Checkpoint(run.path())), row.tokenizer)
        << row.vocab_size << row.data;
  }
}

}  // namespace
}  // namespace muo::trainer
