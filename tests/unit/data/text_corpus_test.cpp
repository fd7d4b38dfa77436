#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/token_data.h"
#include "unit/data/data_files.h"

namespace muo::data {
namespace {

using test::all_tokens;
using test::document;
using test::input_error;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

using Tokens = std::vector<std::int32_t>;

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string name_of_file(int i) { return (i < 10 ? "0" : "") + std::to_string(i) + ".txt"; }

TEST(TextCorpus, EveryFileIsADocumentInTheOrderOfPathBytes) {
  const TempDir dir;
  // '-' and '.' sort before '/', letters after it, as in whole paths.
  dir.write("sub/b", "5");
  dir.write("sub/a", "4");
  dir.write("sub.txt", "3");
  dir.write("sub-x/z", "2");
  dir.write("Zebra", "1");
  dir.write("subway", "6");
  dir.write("\xC3\xA9", "7");
  dir.write(".hidden", "no");
  dir.write(".git/config", "no");
  const TempDir other;
  const auto val = other.write("v", "\xFF\x01text");
  const Corpus corpus = open_corpus({.paths = {dir.path()}, .val_paths = {val}});
  Tokens expected;
  for (const char* text : {"1", "2", "3", "4", "5", "6", "7"})
    expected = expected + document(text);
  EXPECT_EQ(all_tokens(*corpus.train), expected);
  EXPECT_EQ(all_tokens(*corpus.val), document("\xFF\x01text"));
  EXPECT_EQ(corpus.vocab_size, 257);
  EXPECT_EQ(corpus.tokenizer->fingerprint(), "byte");
  ASSERT_EQ(corpus.token_bytes.size(), 257U);
  EXPECT_EQ(corpus.token_bytes[256], 0);
  EXPECT_EQ(std::count(corpus.token_bytes.begin(), corpus.token_bytes.end(), 1), 256);
  EXPECT_THAT(corpus.description,
              AllOf(HasSubstr("8 files"), HasSubstr("14 tokens to train on, 7 held out")));
}

TEST(TextCorpus, ReportsItsSizeInPowersOfTen) {
  const TempDir dir;
  const Corpus corpus = open_corpus({.paths = {dir.write("a", std::string(1'500'000, 'a'))}});
  EXPECT_THAT(corpus.description, HasSubstr("1.5 MB"));
}

TEST(TextCorpus, NamedPathsKeepTheirOrder) {
  const TempDir dir;
  const auto b = dir.write("b", "first");
  dir.write("a/x", "second");
  const TempDir other;
  const auto val = other.write("v", "held out");
  const Corpus corpus = open_corpus({.paths = {b, dir.path() / "a"}, .val_paths = {val}});
  EXPECT_EQ(all_tokens(*corpus.train), document("first") + document("second"));
}

TEST(TextCorpus, ReadsAnyRangeAcrossDocuments) {
  const TempDir dir;
  for (int i = 0; i < 15; ++i)
    dir.write(name_of_file(i),
              std::string(static_cast<std::size_t>(1 + i * 7 % 5), static_cast<char>('a' + i)));
  const Corpus corpus = open_corpus({.paths = {dir.path()}});
  const Tokens whole = all_tokens(*corpus.train);
  for (std::size_t begin = 0; begin <= whole.size(); ++begin) {
    for (std::size_t end = begin; end <= whole.size(); ++end) {
      Tokens out(end - begin);
      corpus.train->read(static_cast<std::int64_t>(begin), out);
      ASSERT_TRUE(std::equal(out.begin(), out.end(), whole.begin() + static_cast<long>(begin)));
    }
  }
  Tokens out(2);
  EXPECT_THROW(corpus.train->read(-1, out), Error);
  EXPECT_THROW(corpus.train->read(corpus.train->size() - 1, out), Error);
}

// Of a document that is a large part of the data, the end is held out; of the others, whole
// documents. The share of each kind is equal, and the order is kept.
TEST(TextCorpus, HoldsOutTheSameShareOfEveryPartOfTheData) {
  for (const double fraction : {0.1, 0.25, 0.333}) {
    const TempDir dir;
    Tokens train, val;
    std::int64_t small = 0;
    const auto write = [&](const std::string& name, std::size_t size) {
      std::string text = name;
      text.resize(size, '.');
      dir.write(name, text);
      return document(text);
    };
    for (int i = 0; i < 2; ++i) {
      const Tokens all = write("a" + std::to_string(i), 30'000 + static_cast<std::size_t>(i));
      const auto cut = all.end() - std::llround(static_cast<double>(all.size()) * fraction);
      train.insert(train.end(), all.begin(), cut);
      val.insert(val.end(), cut, all.end());
    }
    const std::size_t large = val.size();
    for (int i = 0; i < 4000; ++i)
      small +=
          std::ssize(write("b" + name_of_file(i), static_cast<std::size_t>(20 + i * 37 % 100)));
    const Corpus corpus = open_corpus({.paths = {dir.path()}, .val_fraction = fraction});
    const Tokens got = all_tokens(*corpus.val);
    ASSERT_GT(got.size(), large);
    EXPECT_EQ(Tokens(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(large)), val);
    const std::int64_t small_held_out = std::ssize(got) - static_cast<std::int64_t>(large);
    EXPECT_NEAR(static_cast<double>(small_held_out) / static_cast<double>(small), fraction,
                fraction / 15);
    const Tokens documents(got.begin() + static_cast<std::ptrdiff_t>(large), got.end());
    EXPECT_NEAR(static_cast<double>(std::ranges::count(documents, kBosToken)) / 4000, fraction,
                fraction / 15);  // holds for large and small documents alike
    EXPECT_EQ(corpus.train->size(), std::ssize(train) + small - small_held_out);
    EXPECT_EQ(got.at(large), kBosToken);  // whole documents
    EXPECT_THAT(corpus.description, HasSubstr(" whole files, the ends of 2)"));
  }
}

TEST(TextCorpus, TheEndOfASingleDocumentIsHeldOut) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += static_cast<char>('a' + i % 26);
  const auto path = dir.write("one.txt", text);
  for (const double fraction : {0.1, 0.25, 0.333}) {
    const Corpus corpus = open_corpus({.paths = {path}, .val_fraction = fraction});
    EXPECT_EQ(corpus.val->size(), std::llround(1001 * fraction));
    EXPECT_EQ(all_tokens(*corpus.train) + all_tokens(*corpus.val), document(text));
    EXPECT_THAT(corpus.description, HasSubstr("(the end)"));
  }
}

TEST(TextCorpus, HeldOutCopiesOfTrainingDocumentsAreDropped) {
  const TempDir dir;
  for (int i = 100; i < 500; ++i)
    dir.write(std::to_string(i),
              i == 110 || i == 131 ? "document 103" : fmt::format("document {}", i));
  const Corpus corpus = open_corpus({.paths = {dir.path()}});
  EXPECT_EQ(corpus.val->size(), 38 * std::ssize(document("document 100")));
  EXPECT_THAT(corpus.description, HasSubstr("(40 whole files); left out: 2 held-out duplicates"));

  const TempDir other;
  other.write("copy", "document 105");
  other.write("new", "something else");
  const Corpus named = open_corpus({.paths = {dir.path()}, .val_paths = {other.path()}});
  EXPECT_EQ(all_tokens(*named.val), document("something else"));

  std::filesystem::remove(other.path() / "new");
  EXPECT_THAT(input_error({.paths = {dir.path()}, .val_paths = {other.path()}}),
              AllOf(HasSubstr(other.path().native()), HasSubstr("all 1 held-out documents equal"),
                    HasSubstr("--val-data")));
}

TEST(TextCorpus, HeldOutFilesAmongTheTrainingFilesAreNotTrainedOn) {
  const TempDir dir;
  dir.write("a", "first");
  const auto val = dir.write("b", "second");
  dir.write("c", "third");
  const Corpus corpus = open_corpus({.paths = {dir.path()}, .val_paths = {val}});
  EXPECT_EQ(all_tokens(*corpus.train), document("first") + document("third"));
  EXPECT_EQ(all_tokens(*corpus.val), document("second"));
  EXPECT_THAT(corpus.description, HasSubstr("1 files of --data are in --val-data"));
  EXPECT_THAT(input_error({.paths = {val}, .val_paths = {val}}),
              AllOf(HasSubstr(val.native()), HasSubstr("nothing is left to train on")));
}

TEST(TextCorpus, BinaryAndEmptyFilesInDirectoriesAreSkippedAndCounted) {
  const TempDir dir;
  dir.write("a.txt", "text to train on");
  dir.write("b.o", std::string("\x7F"
                               "ELF\0\0",
                               6));
  dir.write("c.bin", std::string(2000, '\0'));  // not a shard: it has no magic number
  dir.write("d.txt", "");
  dir.write("e.txt", "and more text");
  dir.write("f.txt", "\xFE\xFF\x4E\x2D");
  const Corpus corpus = open_corpus({.paths = {dir.path()}, .val_fraction = 0.5});
  EXPECT_EQ(all_tokens(*corpus.train), document("text to") + document("and mo"));
  EXPECT_THAT(corpus.description, HasSubstr("the ends of 2 files"));
  EXPECT_THAT(corpus.description, HasSubstr("left out: 1 UTF-16, 2 binary, 1 empty"));
}

TEST(TextCorpus, TheLimitSelectsWholeFilesInOrder) {
  const TempDir dir;
  for (int i = 0; i < 10; ++i)
    dir.write(name_of_file(i), std::string(100, static_cast<char>('a' + i)));
  const auto files = [&](std::int64_t max_bytes) {
    const Corpus corpus =
        open_corpus({.paths = {dir.path()}, .max_bytes = max_bytes, .val_fraction = 0.5});
    const Tokens tokens = all_tokens(*corpus.train) + all_tokens(*corpus.val);
    EXPECT_EQ(tokens.back(), 'a' + static_cast<std::int32_t>(tokens.size() / 101) - 1);
    return tokens.size() / 101;
  };
  EXPECT_EQ(files(1), 1U);
  EXPECT_EQ(files(100), 1U);
  EXPECT_EQ(files(101), 2U);
  EXPECT_EQ(files(450), 5U);
  EXPECT_EQ(files(100'000), 10U);
  EXPECT_EQ(files(0), 10U);
}

TEST(TextCorpus, LargeFilesAreMappedWithTheSameResult) {
  const TempDir dir;
  std::string large;  // large enough to be mapped, and not a multiple of a page
  for (std::uint32_t i = 0; large.size() < 3'000'017; ++i)
    large += static_cast<char>(1 + (i * 2654435761U >> 8) % 127);
  dir.write("a", "small");
  dir.write("b", large);
  dir.write("c", "small too");
  const TempDir other;
  const auto val = other.write("v", "held out");
  const Corpus corpus = open_corpus({.paths = {dir.path()}, .val_paths = {val}});
  EXPECT_TRUE(all_tokens(*corpus.train) ==
              document("small") + document(large) + document("small too"));
}

TEST(TextCorpus, RefusesInsufficientData) {
  const TempDir dir;
  const auto empty = dir.write("empty.txt", "");
  EXPECT_THAT(input_error({.paths = {empty}}),
              AllOf(HasSubstr(empty.native()), HasSubstr("the file is empty")));
  const auto tiny = dir.write("tiny.txt", "abc");
  EXPECT_THAT(input_error({.paths = {tiny}}),
              AllOf(HasSubstr(tiny.native()), HasSubstr("too short: 0 tokens of held-out data")));
  const auto binary = dir.write("binary.txt", std::string("ab\0cd", 5));
  EXPECT_THAT(input_error({.paths = {binary}}),
              AllOf(HasSubstr(binary.native()),
                    HasSubstr("is binary, not text; there is a zero byte at offset 2")));
  // Chinese in UTF-16 has no zero byte; byte order marks are not valid UTF-8.
  const auto utf16 = dir.write("utf16.txt", "\xFF\xFE\x2D\x4E\x87\x65");
  EXPECT_EQ(input_error({.paths = {utf16}}),
            utf16.native() + " is UTF-16, not text; convert it to UTF-8: iconv -f UTF-16 -t UTF-8");
  const auto only = dir.write("none/b", std::string(1, '\0')).parent_path();
  dir.write("none/c", "");
  EXPECT_THAT(
      input_error({.paths = {only}}),
      AllOf(HasSubstr(only.native()), HasSubstr("no text here (left out: 1 binary, 1 empty)")));
  const auto good = dir.write("good.txt", std::string(100, 'x'));
  EXPECT_THAT(input_error({.paths = {good}, .val_paths = {only}}),
              AllOf(HasSubstr(only.native()), HasSubstr("no text here")));
  EXPECT_THAT(input_error({.paths = {good}, .val_paths = {empty}}),
              AllOf(HasSubstr(empty.native()), HasSubstr("empty")));
}

TEST(TextCorpus, RefusesShardsAndTextTogether) {
  const TempDir dir;
  const auto shard = dir.write("x/a.bin", test::shard_bytes(std::vector<std::uint16_t>(100, 1)));
  const auto text = dir.write("x/b.txt", "some text");
  for (const auto& paths : {std::vector<std::filesystem::path>{shard, text}, {dir.path() / "x"}})
    EXPECT_THAT(input_error({.paths = paths}),
                AllOf(HasSubstr(shard.native() + " is a token shard and " + text.native()),
                      HasSubstr("either .bin shards or text")));
  EXPECT_THAT(input_error({.paths = {shard}, .val_paths = {text}}),
              AllOf(HasSubstr(text.native()), HasSubstr("--val-data is text but --data is")));
  EXPECT_THAT(input_error({.paths = {text}, .val_paths = {shard}}),
              AllOf(HasSubstr(shard.native()), HasSubstr("token shards but --data is text")));
}

TEST(TextCorpus, RefusesImpossibleOptions) {
  const TempDir dir;
  const auto path = dir.write("a", "text");
  EXPECT_THAT(input_error({.paths = {}}), HasSubstr("no training data"));
  for (const double fraction : {0.0, 1.0, -1.0, std::nan("")})
    EXPECT_THROW(open_corpus({.paths = {path}, .val_fraction = fraction}), Error);
  EXPECT_THROW(open_corpus({.paths = {path}, .max_bytes = -1}), Error);
}

}  // namespace
}  // namespace muo::data
