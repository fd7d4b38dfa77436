// Tests the tokenizer.json of exported models.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

#include "data/token_data.h"
#include "data/tokenizer.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "support/files.h"
#include "support/paths.h"

namespace muo::data {
namespace {

using nlohmann::json;

TEST(ExportedTokenizer, OfBytesHasOneTokenForEach) {
  const TokenizerCopy copy = copy_tokenizer("byte");
  EXPECT_EQ(copy.name, "tokenizer.json");
  const json file = json::parse(copy.contents);
  EXPECT_EQ(file["model"]["vocab"].size(), 256U);
  EXPECT_EQ(file["model"]["merges"], json::array());
  ASSERT_EQ(file["added_tokens"].size(), 1U);
  EXPECT_EQ(file["added_tokens"][0]["content"], "<|bos|>");
  EXPECT_EQ(file["added_tokens"][0]["id"], kBosToken);
  const BpeTokenizer read(read_tokenizer_json(copy.contents, "json"), "json");
  const auto bytes = open_tokenizer("byte");
  EXPECT_EQ(read.vocab_size(), kByteVocab);
  EXPECT_EQ(find_bos(read), kBosToken);
  for (std::int32_t id = 0; id < kByteVocab; ++id)
    EXPECT_EQ(read.bytes_of(id), bytes->bytes_of(id)) << id;
  std::string text = "words, 123 and \u00e9\u4e16 \n";
  for (int byte = 0; byte < 256; ++byte)
    text += static_cast<char>(byte);
  EXPECT_EQ(encode(read, text), encode(*bytes, text));
}

TEST(ExportedTokenizer, IsTheSameExceptAtTheStartOfTexts) {
  const std::string golden = test::source_directory() + "/tests/golden/tokenizer/tokenizer.json";
  const std::string text = test::read_file(golden);
  const std::string with_start = with_document_start(text, {.text = "<|\"bos|>", .id = 700});
  auto file = json::parse(text);
  file["post_processor"] = json::parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|\"bos|>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"SpecialToken": {"id": "<|\"bos|>", "type_id": 0}},
               {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
      "special_tokens":
          {"<|\"bos|>": {"id": "<|\"bos|>", "ids": [700], "tokens": ["<|\"bos|>"]}}})");
  EXPECT_EQ(json::parse(with_start), file);
  EXPECT_EQ(BpeTokenizer(read_tokenizer_json(with_start, "json"), "json").fingerprint(),
            open_tokenizer(golden)->fingerprint());
}

}  // namespace
}  // namespace muo::data
