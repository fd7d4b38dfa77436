// Everything that becomes of a text, one command after the other, as docs/tokenizers.md has them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"
#include "system/run_files.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using test::run_program;

// A megabyte: tinyshakespeare where it lies beside the project, else the project's own documents.
std::string english_text() {
  const fs::path source = test::source_directory();
  const fs::path shakespeare = source.parent_path() / "shared" / "data" / "tinyshakespeare.txt";
  if (fs::exists(shakespeare)) return test::read_file(shakespeare);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source / "docs"))
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  std::ranges::sort(files);
  std::string text;
  for (const fs::path& file : files)
    text += test::read_file(file);
  return text;
}

std::string ok(const std::string& arguments) {
  const Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.code, 0) << arguments << ": " << outcome.err;
  return outcome.out;
}

TEST(EndToEnd, FromATextToWeightsForOthersAndBack) {
  const test::TemporaryDirectory directory;
  const auto path = [&](const char* name) { return (directory.path() / name).string(); };
  // A document for each paragraph, so that there are some to pack and to hold out.
  const std::string text = english_text();
  std::string lines;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 2) {
    end = std::min(text.find("\n\n", begin), text.size());
    lines += json{{"text", text.substr(begin, end - begin)}}.dump() + "\n";
  }
  test::write_file(path("text.jsonl"), lines);

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
  EXPECT_LT(steps.back()["loss"], 7.0);

  const json evaluated = json::parse(ok("eval " + path("run") + " --json"));
  EXPECT_GT(evaluated["val_bpb"], 1.0);
  EXPECT_LT(evaluated["val_bpb"], 3.5);
  EXPECT_THAT(ok("sample " + path("run") + " --prompt 'The king' --max-tokens 20"),
              testing::StartsWith("The king"));

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
}

}  // namespace
}  // namespace muo
