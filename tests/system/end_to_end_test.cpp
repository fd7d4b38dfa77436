// From a text to a trained model, in the order of the commands in docs/tokenizers.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/program.h"
#include "system/run_files.h"

namespace muo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_program;

// Documents of random words with the frequencies of a natural language (Zipf's law).
struct MadeUpText {
  std::string json_lines;
  // The entropy of a word in nats: words are independent, so no model has a lower loss.
  double entropy = 0;
  double bytes_per_word = 0;
};

MadeUpText made_up_text() {
  constexpr int kVocabulary = 3000, kDocuments = 2500, kWords = 60;  // about 800 kB in total
  std::vector<double> up_to(kVocabulary);
  double harmonic = 0;
  for (int rank = 0; rank < kVocabulary; ++rank)
    up_to[static_cast<std::size_t>(rank)] = harmonic += 1.0 / (rank + 1);
  MadeUpText out;
  for (int rank = 1; rank <= kVocabulary; ++rank)
    out.entropy += std::log(rank * harmonic) / (rank * harmonic);
  const auto syllable = [](int i) {
    return std::string{"bcdfghjklmnprstvwxyz"[i % 20], "aeiou"[i / 20]};
  };
  std::mt19937_64 random(1);
  std::size_t bytes = 0;
  for (int document = 0; document < kDocuments; ++document) {
    std::string text;
    for (int word = 0; word < kWords; ++word) {
      const double drawn = static_cast<double>(random() >> 11U) * 0x1p-53 * harmonic;
      const auto rank = static_cast<int>(std::ranges::lower_bound(up_to, drawn) - up_to.begin());
      text += (word == 0 ? "" : " ") + syllable(rank % 100) + syllable(rank / 100);
    }
    bytes += text.size();
    out.json_lines += json{{"text", text}}.dump() + "\n";
  }
  out.bytes_per_word = static_cast<double>(bytes) / (kDocuments * kWords);
  return out;
}

std::string ok(const std::string& arguments) {
  const Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.code, 0) << arguments << ": " << outcome.err;
  return outcome.out;
}

TEST(EndToEnd, FromATextToWeightsForOthersAndBack) {
  const test::TemporaryDirectory directory;
  const auto path = [&](const char* name) { return (directory.path() / name).string(); };
  const MadeUpText text = made_up_text();
  test::write_file(path("text.jsonl"), text.json_lines);

  ok("tokenizer train --data " + path("text.jsonl") + " --vocab-size 4096 --out " +
     path("tokenizer.json"));
  ok("tokenize " + path("text.jsonl") + " --tokenizer " + path("tokenizer.json") +
     " --val-every 20 --out " + path("shards"));
  const json manifest = json::parse(test::read_file(path("shards/manifest.json")));
  EXPECT_EQ(manifest["tokenizer"]["vocab_size"], 4096);

  const std::string trained = ok(
      "train --data " + path("shards") +
      " --model nanochat --depth 2 --n-embd 64 --n-head 2 --max-seq-len 64 --device-batch-size 8 "
      "--total-batch-size 2048 --devices 2 --num-iterations 50 --packing best-fit --eval-every 25 "
      "--sample-every 50 --out " +
      path("run"));
  EXPECT_THAT(trained, testing::HasSubstr("documents packed"));
  const std::vector<json> steps = test::metrics_of(path("run"), "train");
  ASSERT_EQ(steps.size(), 50U);
  EXPECT_NEAR(steps.front()["loss"], std::log(4096.0), 0.1);
  // Halfway from uniform probabilities to the frequencies of the words, each of which is a token.
  EXPECT_LT(steps.back()["loss"], (std::log(4096.0) + text.entropy) / 2);

  const json evaluated = json::parse(ok("eval " + path("run") + " --json"));
  EXPECT_GT(evaluated["val_bpb"], text.entropy / std::log(2.0) / text.bytes_per_word);
  EXPECT_LT(evaluated["val_bpb"], std::log2(4096.0) / text.bytes_per_word);
  EXPECT_THAT(ok("sample " + path("run") + " --prompt 'bana ceda' --max-tokens 20"),
              testing::StartsWith("bana ceda"));

  ok("checkpoint export " + path("run") + " --out " + path("exported"));
  ok("checkpoint import --model " + path("exported/model_000050.safetensors") + " --out " +
     path("imported"));
  const std::string data =
      " --data " + path("shards/val_000000.bin") + " --json --packing best-fit";
  const json ours = json::parse(ok("eval " + path("run") + data));
  EXPECT_EQ(ours["val_loss"], evaluated["val_loss"]);  // the same held-out shard
  const json theirs = json::parse(ok("eval " + path("imported") + data));
  EXPECT_EQ(theirs["val_loss"], ours["val_loss"]);
  EXPECT_EQ(theirs["tokens"], ours["tokens"]);

  ok("sweep --data " + path("shards") +
     " --depth 1 --max-seq-len 64 --devices 1 --num-iterations 1 --matrix-lr 0.02 --out " +
     path("sweep"));
  std::filesystem::remove_all(path("shards"));
  // Both contain everything that sampling needs.
  for (const char* run : {"run", "sweep/trials/0000"})
    EXPECT_THAT(ok("sample " + path(run) + " --prompt 'bana ceda' --max-tokens 20"),
                testing::StartsWith("bana ceda"));
}

}  // namespace
}  // namespace muo
