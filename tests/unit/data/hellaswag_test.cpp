#include "data/examples/hellaswag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/check.h"
#include "data/token_data.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "unit/data/data_files.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::uint16_t>;

fs::path golden(const char* name) {
  return fs::path(test::source_directory()) / "tests/golden/core" / name;
}
constexpr HellaSwagOptions kOptions = {.row_tokens = 1000, .vocab_size = kByteVocab};

std::vector<std::vector<std::int32_t>> rows_of(const TokenTask& task) {
  std::vector<std::vector<std::int32_t>> out;
  for (const ExampleRow& row : task.rows)
    task.read(row, out.emplace_back());
  return out;
}

// The two golden files have the same examples; tokens are bytes.
TEST(HellaSwag, FilesOfTextAndOfTokensGiveTheSameExamples) {
  const TokenTask text =
      read_hellaswag(golden("hellaswag.jsonl"), *open_tokenizer("byte"), kOptions);
  const TokenTask tokens = read_eval_file(golden("hellaswag.bin"), kOptions);
  ASSERT_EQ(text.examples.size(), 4U);
  EXPECT_EQ(rows_of(text), rows_of(tokens));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(text.examples[i].gold, i * 3 % 4);
    EXPECT_EQ(tokens.examples[i].gold, i * 3 % 4);
    EXPECT_EQ(text.examples[i].rows, 4U);
  }
  for (std::size_t i = 0; i < text.rows.size(); ++i)
    EXPECT_EQ(text.rows[i].scored, tokens.rows[i].scored);
  // The context of the first example, a space and the ending, without a start-of-document token.
  EXPECT_EQ(text.rows[0].scored, 24);
  EXPECT_EQ(rows_of(text)[0][0], 'A');
  EXPECT_EQ(rows_of(text)[0][24], ' ');
  EXPECT_TRUE(looks_like_eval_file(golden("hellaswag.bin")));
  EXPECT_FALSE(looks_like_eval_file(golden("hellaswag.jsonl")));
}

TEST(HellaSwag, ReadsOnlyTheFirstExamples) {
  HellaSwagOptions options = kOptions;
  options.max_examples = 3;
  EXPECT_EQ(read_eval_file(golden("hellaswag.bin"), options).examples.size(), 3U);
  EXPECT_EQ(
      read_hellaswag(golden("hellaswag.jsonl"), *open_tokenizer("byte"), options).examples.size(),
      3U);
}

// Copies made by `datasets` store labels as texts; Python writes NaN; lines may end as on Windows.
TEST(HellaSwag, IsTheSameInEveryNotation) {
  const TempDir dir;
  const auto read = [&](const std::string& text) {
    return read_hellaswag(dir.write("h.jsonl", text), *open_tokenizer("byte"), kOptions);
  };
  const TokenTask plain = read(R"({"ctx": "a", "endings": ["b", "c"], "label": 1})");
  for (
      const char* const text :
      {R"({"ctx": "a", "endings": ["b", "c"], "label": "1"})",
       R"({"ctx": "a", "endings": ["b", "c"], "label": 1, "NaN \"": [NaN, -Infinity, {"x":Infinity}]})",
       "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"1\"}\r\n"}) {
    const TokenTask task = read(text);
    EXPECT_EQ(rows_of(task), rows_of(plain)) << text;
    EXPECT_EQ(task.examples.front().gold, 1U) << text;
  }
}

TEST(HellaSwag, ErrorsNameTheLineAndTheField) {
  const TempDir dir;
  const auto message = [&](const std::string& text) {
    const fs::path path = dir.write("h.jsonl", text);
    std::string out =
        message_of<InputError>([&] { read_hellaswag(path, *open_tokenizer("byte"), kOptions); });
    return out.starts_with(path.native()) ? out.substr(path.native().size()) : out;
  };
  const std::string good = R"({"ctx": "a", "endings": ["b", "c"], "label": 1})"
                           "\n";
  EXPECT_EQ(message(good), "no exception");
  EXPECT_EQ(message(""), ": the file is empty");
  EXPECT_EQ(message(good + R"({"ctx": "a", "endings": ["b", "c"]})"),
            ": line 2: \"label\" is missing");
  EXPECT_EQ(message(R"({"ctx": "a", "endings": ["b", "c"], "label": 2})"),
            ": line 1: \"label\" is 2, not a whole number from 0 to 1");
  for (const char* const label :
       {R"("2")", R"("")", R"("1 ")", R"("-1")", "-1", "1.0", "true", "NaN"})
    EXPECT_THAT(
        message(std::string(R"({"ctx": "a", "endings": ["b", "c"], "label": )") + label + "}"),
        HasSubstr(", not a whole number from 0 to 1"));
  EXPECT_EQ(message(R"({"ctx": "a", "endings": "b", "label": 0})"),
            ": line 1: \"endings\" is not a list of two or more texts");
  EXPECT_EQ(message(R"({"ctx": "", "endings": ["b", "c"], "label": 0})"),
            ": line 1: \"ctx\" is empty");
  EXPECT_THAT(message(good + "{"), HasSubstr(": line 2: malformed JSON"));
}

std::string eval_file(const Words& words, std::int32_t count, std::int32_t magic = kEvalFileMagic,
                      std::int32_t version = 1) {
  return test::shard_bytes(words, count, magic, version);
}

const Words kExample = {65535, 24, 0, 1, 2, 2, 5, 6, 1, 7, 1, 8};

TEST(EvalFile, IsRead) {
  const TempDir dir;
  const TokenTask task = read_eval_file(dir.write("e.bin", eval_file(kExample, 1)), kOptions);
  EXPECT_THAT(rows_of(task),
              ElementsAre(std::vector<std::int32_t>{5, 6, 7}, std::vector<std::int32_t>{5, 6, 8}));
  EXPECT_EQ(task.rows[0].scored, 2);
  EXPECT_EQ(task.examples[0].gold, 1U);
}

TEST(EvalFile, ErrorsNameTheExampleAndTheFault) {
  const TempDir dir;
  const auto message = [&](const std::string& bytes, std::int64_t row_tokens = 1000) {
    HellaSwagOptions options = kOptions;
    options.row_tokens = row_tokens;
    const fs::path path = dir.write("e.bin", bytes);
    std::string out = message_of<InputError>([&] { read_eval_file(path, options); });
    return out.starts_with(path.native()) ? out.substr(path.native().size()) : out;
  };
  const auto with = [](std::size_t at, std::uint16_t value) {
    Words words = kExample;
    words.at(at) = value;
    return eval_file(words, 1);
  };
  EXPECT_EQ(message(eval_file(kExample, 1)), "no exception");
  EXPECT_EQ(message(""),
            ": truncated: 0 bytes, fewer than the 1024 of an evaluation file's header");
  EXPECT_EQ(message(eval_file(kExample, 1, 20240520)),
            ": not an evaluation file: its first number is 20240520, not 20240522");
  EXPECT_EQ(message(eval_file(kExample, 1, kEvalFileMagic, 2)),
            ": version 2 of evaluation files; only 1 is known");
  EXPECT_EQ(message(eval_file(kExample, 0)), ": the header says 0 examples");
  EXPECT_EQ(message(eval_file(kExample, 2)),
            ": example 1: the file ends in the middle of it; write the file again");
  Words more = kExample;
  more.push_back(1);
  EXPECT_EQ(message(eval_file(more, 1)), ": there are bytes after its 1 examples");
  EXPECT_EQ(message(eval_file(kExample, 1) + "x"), ": there are bytes after its 1 examples");
  EXPECT_EQ(message(with(0, 3)), ": example 0: it does not start with 65535; write the file again");
  EXPECT_EQ(message(with(1, 26)),
            ": example 0: it has 24 bytes, but its header says 26; write the file again");
  EXPECT_EQ(message(with(2, 1)), ": example 0: its index is 1; write the file again");
  EXPECT_EQ(message(with(3, 2)),
            ": example 0: its label is 2, but it has 2 completions; write the file again");
  EXPECT_EQ(message(with(4, 1)),
            ": example 0: its label is 1, but it has 1 completions; write the file again");
  EXPECT_EQ(message(with(5, 0)), ": example 0: its context has no tokens; write the file again");
  EXPECT_EQ(message(with(8, 0)), ": example 0: a completion has no tokens; write the file again");
  EXPECT_EQ(message(with(6, 257)),
            ": example 0: token 257 is outside the model's vocabulary of 257; give a file "
            "written with the model's tokenizer");
  EXPECT_EQ(message(with(10, 600)),
            ": example 0: the file ends in the middle of it; write the file again");
  EXPECT_EQ(message(eval_file({65535, 26, 0, 0, 2, 1, 5, 2, 6, 6, 2, 7, 7}, 1), 2),
            ": example 0: the scored part has 2 tokens, but rows have 2: give --row-tokens 3 or "
            "more");
}

}  // namespace
}  // namespace muo::data
