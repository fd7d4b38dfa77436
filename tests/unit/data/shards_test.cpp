#include "data/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "data/document_index.h"
#include "data/fingerprint.h"
#include "unit/data/data_files.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;
using test::all_tokens;
using test::input_error;
using test::shard_bytes;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

using Tokens = std::vector<std::int32_t>;

std::vector<std::uint16_t> ramp(std::size_t count, std::uint16_t first) {
  std::vector<std::uint16_t> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(static_cast<std::uint16_t>(first + i));
  return out;
}

Tokens wide(const std::vector<std::uint16_t>& tokens) { return {tokens.begin(), tokens.end()}; }

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Shards, TheLastOfSeveralIsHeldOut) {
  const TempDir dir;
  dir.write("t_000.bin", shard_bytes(ramp(100, 0)));
  dir.write("t_001.bin", shard_bytes(ramp(50, 200)));
  dir.write("t_002.bin", shard_bytes(ramp(30, 400)));
  for (const fs::path& path : {dir.path(), dir.path() / "t_*.bin"}) {
    const Corpus corpus = open_corpus({.paths = {path}, .vocab_size = 500});
    EXPECT_EQ(all_tokens(*corpus.train), wide(ramp(100, 0)) + wide(ramp(50, 200)));
    EXPECT_EQ(all_tokens(*corpus.val), wide(ramp(30, 400)));
    EXPECT_EQ(corpus.vocab_size, 500);
    EXPECT_TRUE(corpus.token_bytes.empty());
    EXPECT_EQ(corpus.tokenizer, nullptr);
    EXPECT_EQ(corpus.description,
              "token shards: 2 shards, 150 tokens to train on; 30 tokens held out (1 shard)");
  }
}

TEST(Shards, ValInANameMarksHeldOutShards) {
  const TempDir dir;
  dir.write("fineweb_train_000001.bin", shard_bytes(ramp(100, 0)));
  dir.write("fineweb_train_000002.bin", shard_bytes(ramp(50, 0)));
  dir.write("edu_val_000000.bin", shard_bytes(ramp(10, 100)));
  const Corpus corpus = open_corpus({.paths = {dir.path()}});
  EXPECT_EQ(all_tokens(*corpus.val), wide(ramp(10, 100)));
  EXPECT_EQ(corpus.train->size(), 150);
  EXPECT_EQ(corpus.vocab_size, 257);

  const Corpus all_val =
      open_corpus({.paths = {dir.write("v/val_0.bin", shard_bytes(ramp(9, 0))),
                             dir.write("v/val_1.bin", shard_bytes(ramp(8, 0)))}});
  EXPECT_EQ(all_val.train->size(), 9);
  EXPECT_EQ(all_val.val->size(), 8);
}

TEST(Shards, ValIsAWordOfAName) {
  for (const std::string name : {"x_val.bin", "VAL-0.bin", "valid.bin", "a.validation1.bin"}) {
    const TempDir dir;
    dir.write(name, shard_bytes(ramp(9, 0)));
    dir.write("z.bin", shard_bytes(ramp(100, 0)));
    EXPECT_EQ(open_corpus({.paths = {dir.path()}}).val->size(), 9) << name;
  }
  for (const std::string name :
       {"medieval.bin", "retrieval_0.bin", "intervals.bin", "values.bin"}) {
    const TempDir dir;
    dir.write(name, shard_bytes(ramp(100, 0)));
    dir.write("z.bin", shard_bytes(ramp(9, 0)));
    EXPECT_EQ(open_corpus({.paths = {dir.path()}}).val->size(), 9) << name;
  }
}

TEST(Shards, TheTailOfASingleShardIsHeldOut) {
  const TempDir dir;
  const auto path = dir.write("only_val.bin", shard_bytes(ramp(200, 0)));
  const Corpus corpus = open_corpus({.paths = {path}, .val_fraction = 0.2});
  EXPECT_EQ(corpus.val->size(), 40);
  EXPECT_EQ(all_tokens(*corpus.train) + all_tokens(*corpus.val), wide(ramp(200, 0)));
}

TEST(Shards, WideShardsHoldIdsOfMoreThan16Bits) {
  const TempDir dir;
  std::string bytes = shard_bytes({}, 4, kWideShard.magic, kWideShard.version);
  for (const std::uint32_t id : {70'000U, 1U, 65'536U, 99'999U})
    bytes.append(reinterpret_cast<const char*>(&id), sizeof id);
  const auto path = dir.write("w.bin", bytes);
  const Corpus corpus = open_corpus({.paths = {path}, .val_fraction = 0.5, .vocab_size = 100'000});
  EXPECT_EQ(all_tokens(*corpus.train), (Tokens{70'000, 1}));
  EXPECT_EQ(all_tokens(*corpus.val), (Tokens{65'536, 99'999}));
  EXPECT_THAT(input_error({.paths = {path}, .vocab_size = 99'999}),
              HasSubstr("token 99999 at position 3 is outside the vocabulary of 99999"));
}

TEST(Shards, NamedHeldOutShardsAreUsedCompletely) {
  const TempDir dir;
  dir.write("a.bin", shard_bytes(ramp(100, 0)));
  const auto b = dir.write("b.bin", shard_bytes(ramp(50, 50)));
  dir.write("c_val.bin", shard_bytes(ramp(30, 0)));
  const Corpus corpus = open_corpus({.paths = {dir.path()}, .val_paths = {b}});
  EXPECT_EQ(all_tokens(*corpus.val), wide(ramp(50, 50)));
  EXPECT_EQ(all_tokens(*corpus.train), wide(ramp(100, 0)) + wide(ramp(30, 0)));
  EXPECT_THAT(corpus.description, HasSubstr("1 files of --data are in --val-data"));
}

TEST(Shards, LargeShardsAreMapped) {
  const TempDir dir;
  const auto tokens = ramp(1'500'000, 0);
  const auto path = dir.write("large.bin", shard_bytes(tokens));
  const Corpus corpus = open_corpus({.paths = {path}, .vocab_size = 65'536});
  EXPECT_TRUE(all_tokens(*corpus.train) + all_tokens(*corpus.val) == wide(tokens));
}

TEST(Shards, FingerprintsDependOnEveryToken) {
  const TempDir dir;
  const auto path = dir.write("a.bin", shard_bytes(ramp(60'000, 0)));
  const Corpus corpus = open_corpus({.paths = {path}, .vocab_size = 65'536});
  const Tokens tokens = all_tokens(*corpus.train);
  ASSERT_GT(tokens.size(), 50'000U);
  EXPECT_EQ(corpus.train_fingerprint, crc32(0, reinterpret_cast<const Bytef*>(tokens.data()),
                                            static_cast<uInt>(tokens.size() * sizeof(tokens[0]))));
}

// Only 16 of the 20 blocks of the file are read.
TEST(FileFingerprint, OfALargeFileDependsOnBothEnds) {
  const TempDir dir;
  const std::string text(20 << 16, 'x');
  const std::uint32_t before = file_fingerprint(dir.write("a", text));
  EXPECT_EQ(file_fingerprint(dir.write("b", text)), before);
  for (const std::size_t at : {std::size_t{0}, text.size() - 1}) {
    std::string other = text;
    other[at] = 'y';
    EXPECT_NE(file_fingerprint(dir.write("a", other)), before) << at;
  }
}

TEST(Shards, TheLargestIdOfTheVocabularyIsInside) {
  const TempDir dir;
  auto tokens = ramp(100, 0);
  tokens[70] = 50'256;
  const auto path = dir.write("a.bin", shard_bytes(tokens));
  EXPECT_EQ(input_error({.paths = {path}, .vocab_size = 50'257}), "");
  tokens[30] = 50'255;
  EXPECT_THAT(input_error({.paths = {path}, .vocab_size = 50'256}),
              AllOf(HasSubstr(path.native()), HasSubstr("token 50256 at position 70"),
                    HasSubstr("vocabulary of 50256"), HasSubstr("--vocab-size")));
  tokens[0] = 50'260;
  dir.write("a.bin", shard_bytes(tokens));
  EXPECT_THAT(input_error({.paths = {path}, .vocab_size = 50'257}),
              HasSubstr("token 50260 at position 0 "));
  tokens[0] = 0;
  tokens[20] = 60'000;
  tokens[90] = std::numeric_limits<std::uint16_t>::max();
  dir.write("a.bin", shard_bytes(tokens));
  EXPECT_THAT(input_error({.paths = {path}, .vocab_size = 50'257}),
              AllOf(HasSubstr("token 60000 at position 20"), HasSubstr("largest id in this file is "
                                                                       "65535")));
  EXPECT_THAT(input_error({.paths = {path}}), HasSubstr("vocabulary of 257"));
  EXPECT_THAT(input_error({.paths = {path}, .vocab_size = 65'535}),
              HasSubstr("token 65535 at position 90"));
  EXPECT_EQ(input_error({.paths = {path}, .vocab_size = 65'536}), "");
  EXPECT_EQ(input_error({.paths = {path}, .vocab_size = 1'000'000}), "");
}

// Token 7 begins documents; the last document of the first shard continues in the second one.
TEST(Shards, DocumentsAreFoundForPacking) {
  const TempDir dir;
  dir.write("t_0.bin", shard_bytes({1, 7, 2, 2, 7, 3}));
  dir.write("t_1.bin", shard_bytes({3, 3, 7, 4}));
  dir.write("val.bin", shard_bytes({7, 5, 7, 6, 6}));
  DataOptions options{
      .paths = {dir.path()}, .vocab_size = 10, .packing = Packing::kBestFit, .bos_token = 7};
  const Corpus corpus = open_corpus(options);
  EXPECT_EQ(corpus.bos, 7);
  ASSERT_EQ(corpus.train_documents->size(), 3);
  EXPECT_EQ((*corpus.train_documents)[1].begin, 4);
  EXPECT_EQ((*corpus.train_documents)[1].count, 4);
  EXPECT_EQ(corpus.val_documents->size(), 2);

  options.bos_token = 9;
  EXPECT_THAT(input_error(options),
              AllOf(HasSubstr("no document begins in the training data, which lacks token 9"),
                    HasSubstr("--packing contiguous")));
  options.bos_token = 10;
  EXPECT_THAT(input_error(options), AllOf(HasSubstr("--bos-token 10: "), HasSubstr("10 ids")));
  options.bos_token = -1;
  EXPECT_THAT(input_error(options), HasSubstr("give --bos-token"));
  options.packing = Packing::kContiguous;
  EXPECT_EQ(open_corpus(options).train_documents, nullptr);
}

TEST(Shards, RefusesMalformedFiles) {
  const TempDir dir;
  const auto tokens = ramp(100, 0);
  const auto error_of = [&](const std::string& content) {
    const auto path = dir.write("s.bin", content);
    std::string error = input_error({.paths = {path}});
    EXPECT_THAT(error, AllOf(HasSubstr(path.native()), testing::Not(HasSubstr("\n"))));
    return error;
  };
  const std::string good = shard_bytes(tokens);
  EXPECT_THAT(error_of(""), HasSubstr("the file is empty"));
  EXPECT_THAT(error_of(good.substr(0, 1000)),
              AllOf(HasSubstr("truncated: 1000 bytes"), HasSubstr("1024")));
  EXPECT_THAT(error_of(good.substr(0, 1024)),
              AllOf(HasSubstr("truncated: 1024 bytes"), HasSubstr("100 tokens, i.e. 1224 bytes")));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 1)), HasSubstr("truncated: 1223 bytes"));
  EXPECT_THAT(error_of(good + "x"), HasSubstr("bytes after the last token: 1225 bytes"));
  EXPECT_THAT(error_of(shard_bytes(tokens, 100, 77)),
              AllOf(HasSubstr("first number is 77, neither 20240520 nor 20240801")));
  EXPECT_THAT(error_of(shard_bytes(tokens, 100, 20240801)),
              HasSubstr("shard version 1, but for magic 20240801 only version 7 (uint32 tokens)"));
  EXPECT_THAT(error_of(shard_bytes(tokens, 100, 20240801, 7)), HasSubstr("truncated: 1224 bytes"));
  EXPECT_THAT(error_of(shard_bytes(tokens, 100, 20240520, 2)),
              AllOf(HasSubstr("shard version 2, but for magic 20240520 only version 1")));
  EXPECT_THAT(error_of(shard_bytes(tokens, -100)), HasSubstr("the header says -100 tokens"));
  EXPECT_THAT(error_of(shard_bytes({}, 0)), HasSubstr("the header says 0 tokens"));
  EXPECT_THAT(error_of(shard_bytes({1})), HasSubstr("too short: 1 token of training data"));
  // Twice this count does not fit in 32 bits.
  EXPECT_THAT(error_of(shard_bytes(tokens, 2'147'483'647)), HasSubstr("i.e. 4294968318 bytes"));
}

TEST(Shards, EveryShardIsChecked) {
  const TempDir dir;
  dir.write("a.bin", shard_bytes(ramp(100, 0)));
  const auto bad = dir.write("b.bin", shard_bytes(ramp(100, 0)).substr(0, 1100));
  dir.write("c.bin", shard_bytes(ramp(100, 0)));
  EXPECT_THAT(input_error({.paths = {dir.path()}}),
              AllOf(HasSubstr(bad.native()), HasSubstr("truncated")));
  const TempDir good;
  good.write("a.bin", shard_bytes(ramp(100, 0)));
  EXPECT_THAT(input_error({.paths = {good.path()}, .val_paths = {bad}}),
              AllOf(HasSubstr(bad.native()), HasSubstr("truncated")));
}

TEST(Shards, RandomDamageIsRefusedOrHarmless) {
  const TempDir dir;
  const std::string good = shard_bytes(ramp(64, 0));
  const CounterRandom random(7, "damage");
  std::uint64_t draw = 0;
  const auto below = [&](std::size_t bound) { return random.bits(draw++) % bound; };
  int refused = 0;
  constexpr int kTrials = 2'000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::string bytes = good;
    for (std::size_t edits = 1 + below(4); edits > 0 && !bytes.empty(); --edits) {
      // Half of the changes affect the first numbers of the header.
      const std::size_t at =
          below(2) == 0 ? below(std::min<std::size_t>(12, bytes.size())) : below(bytes.size());
      switch (below(5)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.insert(at, below(40), static_cast<char>(below(256)));
          break;
        default:
          bytes.erase(at, below(40));
      }
    }
    const auto path = dir.write("s.bin", bytes);
    try {
      const TokenShard shard = open_shard(path, 100);
      ASSERT_EQ(bytes.size(), kShardHeaderBytes + shard.tokens.size());
      Tokens ids(static_cast<std::size_t>(shard.size()));
      shard.read(0, ids);
      ASSERT_THAT(ids, testing::Each(AllOf(testing::Ge(0), testing::Lt(100))));
    } catch (const InputError& error) {
      ++refused;
      ASSERT_THAT(error.what(), HasSubstr(path.native()));
    }
  }
  EXPECT_GT(refused, kTrials / 2);
  EXPECT_LT(refused, kTrials);  // some damage is in unused bytes, or results in a valid id
}

}  // namespace
}  // namespace muo::data
