// A SentencePiece model used for shards, a run, its samples and an export; and a system without
// libsentencepiece.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "support/command.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"
#include "system/run_files.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::read_file;
using test::run_program;
using test::write_file;
using testing::HasSubstr;

class SentencePieceRun : public testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 200; ++i)
      lines += R"({"text": "Line )" + std::to_string(i) +
               R"( of a text  that says \"café\" again,\nand the numbers )" +
               std::to_string(i * i * 7919) + R"(."})" + "\n";
    write_file(path("text.jsonl"), lines);
    fs::copy(golden("llama"), path("tokenizer.model"));
  }
  static fs::path golden(const std::string& name) {
    return fs::path(test::source_directory()) / "tests/golden/sentencepiece" / (name + ".model");
  }
  [[nodiscard]] std::string path(const std::string& name) const { return directory_.path() / name; }
  static Outcome ok(const std::string& arguments) {
    Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << ": " << outcome.err;
    return outcome;
  }
  static void expect_refused(const std::string& arguments, const std::string& why) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << arguments;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  [[nodiscard]] std::string tokenize(const std::string& out) const {
    return "tokenize " + path("text.jsonl") + " --tokenizer " + path("tokenizer.model") +
           " --shard-tokens 3000 --val-every 20 --out " + path(out);
  }
  // Runs the program with another core library and the plug-ins beside it.
  [[nodiscard]] Outcome encode_beside(const std::string& folder,
                                      const std::string& tokenizer) const {
    return test::run_command("echo Hello | LD_LIBRARY_PATH=" + path(folder) + " " +
                             test::program() + " tokenizer encode --tokenizer " + tokenizer);
  }

  static constexpr const char* kModel =
      " --model plain --depth 1 --n-embd 32 --n-head 2 --max-seq-len 32 --device-batch-size 4 "
      "--devices 2 --total-batch-size 256 --eval-every 10 ";

 private:
  test::TemporaryDirectory directory_;
};

TEST_F(SentencePieceRun, FromTextToShardsARunItsSamplesAndAnExport) {
  fs::create_directories(path("shards/.train_000002.bin.tmp"));  // cannot be opened as a file
  EXPECT_EQ(run_program(tokenize("shards")).code, 3);
  fs::remove(path("shards/.train_000002.bin.tmp"));
  EXPECT_THAT(ok(tokenize("shards")).out, HasSubstr("continues after"));
  EXPECT_THAT(ok(tokenize("shards")).out, HasSubstr("complete already"));
  const auto manifest = nlohmann::json::parse(read_file(path("shards/manifest.json")));
  EXPECT_EQ(manifest["tokenizer"]["file"], "tokenizer.model");
  EXPECT_EQ(manifest["tokenizer"]["bos"], 1);
  EXPECT_EQ(manifest["token_bytes"][1], 0);
  EXPECT_EQ(manifest["token_bytes"][3], 1);
  const std::string model = read_file(path("tokenizer.model"));
  EXPECT_EQ(read_file(path("shards/tokenizer.model")), model);
  EXPECT_FALSE(fs::exists(path("shards/tokenizer.json")));

  const std::string train = "train --data " + path("shards") + kModel + "--out " + path("run");
  EXPECT_THAT(ok(train + " --num-iterations 20").out, HasSubstr("bits/byte"));
  EXPECT_EQ(read_file(path("run/tokenizer.model")), model);
  fs::remove(path("tokenizer.model"));  // the run directory contains everything needed
  ok(train + " --num-iterations 30 --resume auto");
  EXPECT_THAT(ok("eval " + path("run")).out, HasSubstr("val_bpb"));
  EXPECT_THAT(ok("sample " + path("run") + " --prompt Line --max-tokens 30").out,
              testing::StartsWith("Line"));
  EXPECT_THAT(ok("checkpoint export " + path("run") + " --hf " + path("hf")).out,
              HasSubstr("hf/tokenizer.model\n"));
  EXPECT_EQ(read_file(path("hf/tokenizer.model")), model);
}

TEST_F(SentencePieceRun, TextAndItsShardsAreTheSameTokens) {
  ok(tokenize("shards") + " --val-tokens 0");
  const std::string ids =
      ok("tokenizer encode " + path("text.jsonl") + " --tokenizer " + path("tokenizer.model")).out;
  const auto tokens =
      std::count_if(ids.begin(), ids.end(), [](char c) { return c == ' ' || c == '\n'; });
  std::int64_t written = 0;
  const auto manifest = nlohmann::json::parse(read_file(path("shards/manifest.json")));
  for (const auto& shard : manifest["shards"])
    written += shard["tokens"].get<std::int64_t>();
  EXPECT_EQ(written, tokens + 200);  // one <s> per document
  write_file(path("ids"), ids.substr(0, ids.find('\n')));
  EXPECT_EQ(ok("tokenizer decode " + path("ids") + " --tokenizer " + path("tokenizer.model")).out,
            "Line 0 of a text  that says \"café\" again,\nand the numbers 0.");
  write_file(path("text.txt"), ids + ids);
  EXPECT_THAT(
      ok("train --data " + path("text.txt") + " --tokenizer " + path("tokenizer.model") + kModel +
         "--num-iterations 1 --eval-every -1 --sample-every -1 --out " + path("from_text"))
          .out,
      HasSubstr("by tokenizer.model"));
  EXPECT_TRUE(fs::exists(path("from_text/tokenizer.model")));
}

TEST_F(SentencePieceRun, RefusesInOneLine) {
  const std::string model = read_file(path("tokenizer.model"));
  write_file(path("cut.model"), model.substr(0, model.size() - 20));
  expect_refused("tokenizer encode " + path("text.jsonl") + " --tokenizer " + path("cut.model"),
                 "cut.model: a SentencePiece model, but the file is cut short or damaged");
  expect_refused(
      "tokenizer convert " + path("tokenizer.model") + " --out " + path("tokenizer.json"),
      "tokenizer.model: a SentencePiece model, which is not a byte-level BPE");
  expect_refused(
      "tokenizer convert " + test::source_directory() +
          "/tests/golden/tokenizer/ranks.tiktoken --pattern gpt4 --special a=900 --out " +
          path("tokenizer.json"),
      "ranks.tiktoken: as a tokenizer.json it would have other ids");
  write_file(path("no_bos.model"), read_file(fs::path(test::source_directory()) /
                                             "tests/fuzz/corpus/sentencepiece/good_unigram_rules"));
  expect_refused("tokenize " + path("text.jsonl") + " --tokenizer " + path("no_bos.model") +
                     " --out " + path("shards"),
                 "no_bos.model: no special token that starts documents");
}

TEST_F(SentencePieceRun, SaysWhatToInstall) {
  ok("tokenizer train --data " + path("text.jsonl") +
     " --vocab-size 270 --pattern 'a|[^a]+' --out " + path("own.json"));
  const fs::path build = fs::path(test::program()).parent_path();
  fs::create_directory(path("build"));
  fs::copy(build / "libmuograph_core.so", path("build"));
  const Outcome unbuilt = encode_beside("build", path("tokenizer.model"));
  EXPECT_EQ(unbuilt.code, 2);
  EXPECT_THAT(unbuilt.err, HasSubstr("tokenizer.model: a SentencePiece model: this build has no "
                                     "libmuograph_sentencepiece.so\n"));
  // A plug-in that needs a library with another name, which does not exist.
  const auto expect_advice = [&](const std::string& plugin, const std::string& library,
                                 const std::string& package, const std::string& tokenizer) {
    std::string bytes = read_file(build / plugin);
    const std::size_t name = bytes.find(library + '\0');
    ASSERT_NE(name, std::string::npos);
    bytes[name + library.size() - 1] = '?';
    write_file(path("build/" + plugin), bytes);
    const Outcome missing = encode_beside("build", tokenizer);
    EXPECT_EQ(missing.code, 2);
    EXPECT_THAT(missing.err, HasSubstr("?: cannot open shared object file: No such file or "
                                       "directory; install it: apt-get install " +
                                       package + "\n"));
  };
  expect_advice("libmuograph_sentencepiece.so", "libsentencepiece.so.0", "libsentencepiece0",
                path("tokenizer.model"));
  expect_advice("libmuograph_oniguruma.so", "libonig.so.5", "libonig5", path("own.json"));
}

}  // namespace
}  // namespace muo
