// From a text to a model trained with a custom tokenizer, and what is rejected on the way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "base/durable_files.h"
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

class Tokenize : public testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 400; ++i)
      lines += R"({"text": "Line )" + std::to_string(i) +
               R"( of a text that says \"café\" again,\nand the numbers )" +
               std::to_string(i * i * 7919) + R"(."})" + "\n";
    write_file(path("text.jsonl"), lines);
    ok("tokenizer train --data " + path("text.jsonl") + " --vocab-size 400 --out " +
       path("tokenizer.json"));
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
  }
  [[nodiscard]] std::string tokenize(const std::string& out, const std::string& more = "") const {
    return "tokenize " + path("text.jsonl") + " --tokenizer " + path("tokenizer.json") +
           " --shard-tokens 3000 --val-every 20 --out " + path(out) + " " + more;
  }
  [[nodiscard]] nlohmann::json manifest(const std::string& out) const {
    return nlohmann::json::parse(read_file(path(out + "/manifest.json")));
  }

 private:
  test::TemporaryDirectory directory_;
};

TEST_F(Tokenize, FromTextToAModelThatWritesIt) {
  EXPECT_THAT(ok(tokenize("shards")).out, HasSubstr("400 documents"));
  const nlohmann::json manifest = this->manifest("shards");
  EXPECT_TRUE(manifest["complete"]);
  EXPECT_EQ(manifest["tokenizer"]["vocab_size"], 400);
  EXPECT_EQ(manifest["token_bytes"].size(), 400U);
  ASSERT_GT(manifest["shards"].size(), 3U);
  EXPECT_TRUE(manifest["shards"][0]["held_out"]);

  const std::string model =
      " --model plain --depth 1 --n-embd 32 --n-head 2 --max-seq-len 32 --device-batch-size 4 "
      "--devices 2 --total-batch-size 256 --num-iterations 50 --eval-every 25 ";
  const Outcome trained = ok("train --data " + path("shards") + model + "--out " + path("run"));
  EXPECT_THAT(trained.out, HasSubstr("bits/byte"));
  EXPECT_EQ(read_file(path("run/tokenizer.json")), read_file(path("tokenizer.json")));
  EXPECT_LT(test::metrics_of(path("run"), "train").back().at("loss"), 5.5);
  // Both need only the run directory.
  fs::remove(path("tokenizer.json"));
  EXPECT_THAT(ok("eval " + path("run")).out, HasSubstr("val_bpb"));
  const Outcome sample = ok("sample " + path("run") + " --prompt Line --max-tokens 40");
  EXPECT_THAT(sample.out, testing::StartsWith("Line"));
  EXPECT_GT(sample.out.size(), 20U);
}

TEST_F(Tokenize, TextAndItsShardsAreTheSameTokens) {
  ok(tokenize("shards", "--val-tokens 0"));
  const std::string model =
      " --model plain --depth 1 --n-embd 32 --n-head 2 --max-seq-len 32 "
      "--device-batch-size 4 --devices 1 --total-batch-size 128 --num-iterations 1 --eval-every -1 "
      "--sample-every -1 ";
  const Outcome shards = ok("train --data " + path("shards") + model + "--out " + path("a"));
  EXPECT_THAT(shards.out, HasSubstr("token shards"));
  const std::string ids =
      ok("tokenizer encode " + path("text.jsonl") + " --tokenizer " + path("tokenizer.json")).out;
  const auto tokens =
      std::count_if(ids.begin(), ids.end(), [](char c) { return c == ' ' || c == '\n'; });
  std::int64_t written = 0;
  const nlohmann::json manifest = this->manifest("shards");
  for (const auto& shard : manifest["shards"])
    written += shard["tokens"].get<std::int64_t>();
  EXPECT_EQ(written, tokens + 400);  // one <|bos|> per document
  write_file(path("ids"), ids);
  EXPECT_THAT(ok("tokenizer decode " + path("ids") + " --tokenizer " + path("tokenizer.json")).out,
              HasSubstr("café\" again,\nand the numbers 7919."));
}

TEST_F(Tokenize, ResumesAfterAnInterruption) {
  ok(tokenize("whole"));
  // Interrupted before the manifest lists any shard, and interrupted later.
  for (const std::string shard : {"train_000000.bin", "train_000002.bin"}) {
    const fs::path temporary = path("part/." + shard + ".tmp");
    fs::remove_all(path("part"));
    fs::create_directories(temporary);  // cannot be opened as a file
    const Outcome failed = run_program(tokenize("part"));
    EXPECT_EQ(failed.code, 3);
    EXPECT_THAT(failed.err, HasSubstr("cannot write " + path("part/" + shard)));
    EXPECT_FALSE(manifest("part")["complete"]);
    fs::remove(temporary);
    fs::copy_file(path("whole/" + shard), path("part/" + shard));
    expect_refused("train --data " + path("part"), "tokenizing was interrupted after");
    ok(tokenize("part"));
    EXPECT_EQ(read_file(path("part/manifest.json")), read_file(path("whole/manifest.json")));
  }
  const std::string whole_manifest = read_file(path("part/manifest.json"));
  // As if interrupted before the last manifest was written: nothing is left to encode.
  nlohmann::json held = manifest("part");
  held["complete"] = false;
  write_file(path("part/manifest.json"), held.dump());
  EXPECT_THAT(ok(tokenize("part")).out, HasSubstr("bytes per token, 0.0 MB/s"));
  EXPECT_EQ(read_file(path("part/manifest.json")), whole_manifest);
  for (const std::size_t bytes : {std::size_t{0}, whole_manifest.size() / 2}) {
    write_file(path("part/manifest.json"), whole_manifest.substr(0, bytes));
    expect_refused("train --data " + path("part"), "part/manifest.json: ");
  }
  write_file(path("part/manifest.json"), whole_manifest);
  {
    std::string holder;
    const FileLock lock = FileLock::try_file(path("part/.lock"), holder);
    expect_refused(tokenize("part"), " is tokenizing there: wait until it ends");
  }
  EXPECT_THAT(ok(tokenize("part")).out, HasSubstr("complete already"));
  std::string text = read_file(path("text.jsonl"));
  text[text.find("Line")] = 'l';
  write_file(path("text.jsonl"), text);
  expect_refused(tokenize("part"), "holds shards of other text");
  text[text.find("line")] = 'L';
  write_file(path("text.jsonl"), text);
  const nlohmann::json whole = manifest("whole");
  EXPECT_GT(whole["shards"].size(), 3U);
  for (const auto& shard : whole["shards"])
    EXPECT_EQ(read_file(path("part/" + shard["file"].get<std::string>())),
              read_file(path("whole/" + shard["file"].get<std::string>())))
        << shard;
  EXPECT_THAT(ok(tokenize("part")).out, HasSubstr("complete already"));
}

TEST_F(Tokenize, RejectsMismatchedInputs) {
  ok(tokenize("shards"));
  expect_refused(tokenize("shards", "--field other"), "holds shards of other text, options");
  ok("tokenizer train --data " + path("text.jsonl") + " --vocab-size 390 --out " +
     path("other.json"));
  expect_refused("train --data " + path("shards") + " --tokenizer " + path("other.json"),
                 "its fingerprint is");
  expect_refused("train --data " + path("shards") + " --vocab-size 300", "has 400 ids");
  std::string shard = read_file(path("shards/train_000001.bin"));
  shard[2000] = static_cast<char>(shard[2000] ^ 1);  // changes an id
  write_file(path("shards/train_000001.bin"), shard);
  expect_refused("train --data " + path("shards"), "train_000001.bin: damaged: its CRC-32 is");
  fs::remove(path("shards/train_000001.bin"));
  expect_refused("train --data " + path("shards"), "train_000001.bin: missing");
  write_file(path("shards/train_000001.bin"), "short");
  expect_refused("train --data " + path("shards"), "train_000001.bin: 5 bytes, but");
  fs::create_directory(path("others"));
  write_file(path("others/x.bin"), "");
  expect_refused(tokenize("others"), "holds x.bin, which no manifest.json lists");
  write_file(path("bad.jsonl"), "{\"text\": \"a\"}\n{\"body\": \"b\"}\n");
  expect_refused("tokenize " + path("bad.jsonl") + " --tokenizer byte --out " + path("bad"),
                 "bad.jsonl: line 2: no field 'text'");
  expect_refused(
      "tokenizer train --field body --data " + path("bad.jsonl") + " --out " + path("bad"),
      "bad.jsonl: line 1: no field 'body'");
  expect_refused("tokenize " + path("none.txt") + " --tokenizer byte --out " + path("bad"),
                 "none.txt");
  fs::create_directory(path("folder"));
  write_file(path("folder/a.txt"), std::string(1'500'000, 'a'));
  write_file(path("folder/b.parquet"), "PAR1");
  // Output inside the input folder is not input.
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(
        ok("tokenize " + path("folder") + " --tokenizer byte --out " + path("folder/out")).out,
        HasSubstr(i == 0 ? "1 documents, 1.5 MB" : "complete already: 1 documents"));
  expect_refused("tokenize " + path("folder/b.parquet") + " --tokenizer byte --out " + path("bad"),
                 "b.parquet is Parquet, not text; pipe it: /");
  expect_refused("tokenizer train --data " + path("folder/b.parquet") + " --out " + path("bad"),
                 "b.parquet is Parquet");
  expect_refused("tokenizer decode " + path("bad.jsonl") + " --tokenizer byte",
                 "is not the id of a token");
}

// File names need not be UTF-8, but JSON, and so the manifest, must be.
TEST_F(Tokenize, TakesFilesOfAnyName) {
  const std::string folder = path("names");
  fs::create_directory(folder);
  for (const char* const name : {"caf\xE9.txt", "\xFF\xFE.jsonl", "\xE4\xB8\xAD.txt"})
    fs::copy_file(path("text.jsonl"), fs::path(folder) / name);
  const std::string command =
      "tokenize " + folder + " '" + folder + "/caf*' --tokenizer byte --out " + path("out");
  EXPECT_THAT(ok(command).out, HasSubstr("402 documents"));
  EXPECT_THAT(ok(command).out, HasSubstr("complete already"));
  const nlohmann::json source = manifest("out")["source"]["files"];
  ASSERT_EQ(source.size(), 3U);
  EXPECT_EQ(source[0]["file"], folder + "/caf\xEF\xBF\xBD.txt");
  EXPECT_EQ(source[1]["file"], folder + "/\xE4\xB8\xAD.txt");
}

// A stand-in for pyarrow, whose files have one row group per line and end with a footer.
constexpr const char* kParquet = R"py(
import json, types, pyarrow
class ParquetFile:
    def __init__(self, path):
        *self.groups, footer = open(path).read().splitlines()
        if footer != "footer": raise pyarrow.ArrowException("no footer")
        self.num_row_groups, self.schema_arrow = len(self.groups), types.SimpleNamespace(names=["text", "url"])
    def __enter__(self): return self
    def __exit__(self, *error): pass
    def read_row_group(self, group, columns):
        if self.groups[group] == "damaged": raise pyarrow.ArrowException("damaged page")
        return {"text": types.SimpleNamespace(to_pylist=lambda: json.loads(self.groups[group]))}
)py";

// A failing reader is not the end of the data.
TEST_F(Tokenize, RejectsIncompleteParquetFiles) {
  fs::create_directories(path("modules/pyarrow"));
  write_file(path("modules/pyarrow/__init__.py"), "class ArrowException(Exception): pass\n");
  write_file(path("modules/pyarrow/parquet.py"), kParquet);
  write_file(path("good"), "[\"a\", null, \"b\"]\n[\"\u00e9\"]\nfooter\n");
  write_file(path("cut"), "[\"a\"]\n[\"b\"]\n");
  write_file(path("damaged"), "[\"a\"]\ndamaged\nfooter\n");
  const auto read = [&](const std::string& files) {
    return "cd " + path("") + " && PYTHONPATH=modules python3 " + test::source_directory() +
           "/scripts/read_parquet.py " + files;
  };
  const auto tokenized = [&](const std::string& files, const std::string& out) {
    return test::run_command("(" + read(files) + ") | " + test::program() +
                             " tokenize - --tokenizer byte --out " + path(out));
  };
  EXPECT_THAT(tokenized("good good", "whole").out, HasSubstr("6 documents"));
  EXPECT_TRUE(manifest("whole")["complete"]);
  for (const char* const bad : {"cut", "damaged", "none", "good --column body"}) {
    fs::remove_all(path("part"));
    const Outcome outcome = tokenized(concat("good ", bad), "part");
    EXPECT_EQ(outcome.code, 2) << bad << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("read_parquet.py: ")) << bad;
    EXPECT_FALSE(manifest("part")["complete"]) << bad;
  }
  // The footers of all files are read first.
  EXPECT_EQ(test::run_command(read("good cut")).out, "read_parquet.py: cut: no footer\n");
  EXPECT_EQ(test::run_command(read("good damaged")).out,
            "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"\u00e9\"}\n{\"text\": \"a\"}\n"
            "read_parquet.py: damaged: damaged page\n");
}

TEST_F(Tokenize, ReadsStandardInputAndMakesWideShards) {
  const Outcome outcome =
      test::run_command("printf '{\"body\": \"ab\"}\\n{\"body\": \"c\"}\\n' | " + test::program() +
                        " tokenize - --tokenizer byte --field body --out " + path("bytes"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("5 tokens in 1 shard"));
  EXPECT_THAT(outcome.out, HasSubstr("no held-out shard"));
  const std::string shard = read_file(path("bytes/train_000000.bin"));
  EXPECT_EQ(shard.substr(1024), std::string("\0\1a\0b\0\0\1c\0", 10));

  // The same input again, then a different one, a longer one and a shorter one.
  const std::string tokenize_stdin =
      test::program() + " tokenize - --tokenizer byte --field body --out " + path("bytes");
  const auto again = [&](const std::string& lines) {
    return test::run_command(concat("printf '", lines, "' | ", tokenize_stdin));
  };
  const std::string first = "{\"body\": \"ab\"}\\n", second = "{\"body\": \"c\"}\\n";
  EXPECT_THAT(again(first + second).out, HasSubstr("complete already: 2 documents"));
  for (const std::string& other :
       {first + first, concat(first, second, second), first, std::string()}) {
    const Outcome refused = again(other);
    EXPECT_EQ(refused.code, 2) << other;
    EXPECT_THAT(refused.err, HasSubstr("holds shards of other text")) << other;
  }

  // A tokenizer whose ids exceed 16 bits.
  auto wide_tokenizer = nlohmann::json::parse(read_file(path("tokenizer.json")));
  for (const auto& token : wide_tokenizer["added_tokens"]) {
    auto& vocab = wide_tokenizer["model"]["vocab"];
    const std::string text = token["content"];
    vocab[text] = text == "<|bos|>" ? 70000 : 70001 + vocab.size();
  }
  write_file(path("wide.json"), wide_tokenizer.dump());
  ok("tokenize " + path("text.jsonl") + " --tokenizer " + path("wide.json") + " --out " +
     path("wide"));
  const std::string wide = read_file(path("wide/train_000000.bin"));
  EXPECT_EQ(wide.substr(1024, 4), std::string("\x70\x11\x01\0", 4));
}

}  // namespace
}  // namespace muo
