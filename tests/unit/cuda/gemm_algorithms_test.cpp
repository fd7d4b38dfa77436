#include "kernels/cuda/gemm_algorithms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/files.h"

namespace muo {
namespace {

using cuda::GemmAlgorithm;
using cuda::GemmAlgorithms;
using cuda::GemmEnvironment;
using ::testing::AllOf;
using ::testing::HasSubstr;

const GemmEnvironment kHere{.library = 130100, .gpu = "Some GPU (132 multiprocessors)"};

GemmAlgorithm algorithm(int id) {
  GemmAlgorithm out;
  for (std::size_t i = 0; i < out.attributes.size(); ++i)
    out.attributes[i] = id + static_cast<int>(i);
  for (std::size_t i = 0; i < out.words.size(); ++i)
    out.words[i] = ~std::uint64_t{0} - static_cast<std::uint64_t>(id) - i;
  out.microseconds = 0.1 * id;
  return out;
}

class GemmAlgorithmsFile : public ::testing::Test {
 protected:
  // Saves a table of two entries, replaces `was` by `is` in its text, and returns the
  // result of loading it.
  std::string load_with(const std::string& was, const std::string& is) {
    GemmAlgorithms made;
    made.record(kHere, "p", algorithm(3));
    made.record(kHere, "q", algorithm(4));
    made.save(path);
    std::string text = test::read_file(path);
    const std::size_t at = text.find(was);
    EXPECT_NE(at, std::string::npos) << "'" << was << "' is not in " << text;
    if (at != std::string::npos) text.replace(at, was.size(), is);
    test::write_file(path, text);
    return test::message_of<InputError>([&] { GemmAlgorithms().load(path, kHere); });
  }

  test::TemporaryDirectory directory;
  std::filesystem::path path = directory.path() / "gemm.json";
};

TEST_F(GemmAlgorithmsFile, RestoresEveryBit) {
  GemmAlgorithms made;
  EXPECT_TRUE(made.record(kHere, "first", algorithm(66)));
  EXPECT_TRUE(made.record(kHere, "second", algorithm(7)));
  made.save(path);
  GemmAlgorithms loaded;
  loaded.load(path, kHere);
  EXPECT_EQ(loaded.size(), 2);
  EXPECT_EQ(loaded.find(kHere, "first"), algorithm(66));
  EXPECT_EQ(loaded.find(kHere, "second"), algorithm(7));
  EXPECT_EQ(loaded.find(kHere, "third"), std::nullopt);
}

TEST(GemmAlgorithms, AreReplacedByThoseOfAnotherProcess) {
  GemmAlgorithms theirs, ours;
  EXPECT_TRUE(ours.adopt(theirs.text(), kHere));  // nothing was measured
  theirs.record(kHere, "p", algorithm(1));
  theirs.record(kHere, "q", algorithm(2));
  ours.record(kHere, "p", algorithm(3));
  ours.record(kHere, "r", algorithm(4));
  const int before = ours.adoptions();
  EXPECT_TRUE(ours.adopt(theirs.text(), kHere));
  EXPECT_NE(ours.adoptions(), before);
  EXPECT_EQ(ours.find(kHere, "p"), algorithm(1));
  EXPECT_EQ(ours.find(kHere, "q"), algorithm(2));
  EXPECT_EQ(ours.find(kHere, "r"), algorithm(4));
  GemmEnvironment other = kHere;
  other.gpu = "Another GPU";
  EXPECT_FALSE(GemmAlgorithms().adopt(theirs.text(), other));
  EXPECT_THROW(ours.adopt("{}", kHere), InputError);
}

TEST_F(GemmAlgorithmsFile, IsNotUsedWithAnotherLibraryOrGpu) {
  GemmAlgorithms made;
  made.record(kHere, "p", algorithm(1));
  made.save(path);
  GemmEnvironment newer = kHere;
  newer.library = 130200;
  GemmEnvironment other = kHere;
  other.gpu = "Another GPU";
  for (const GemmEnvironment& there : {newer, other}) {
    GemmAlgorithms loaded;
    EXPECT_THAT(test::message_of<InputError>([&] { loaded.load(path, there); }),
                AllOf(HasSubstr("gemm.json: measured with cuBLASLt 130100 on Some GPU"),
                      HasSubstr(concat("this is cuBLASLt ", there.library, " on ", there.gpu))));
    EXPECT_EQ(loaded.size(), 0);
  }
}

// Two runs share a file. The last writer keeps the entries of the other run, and its own if
// both have an entry.
TEST_F(GemmAlgorithmsFile, KeepsEntriesThatOthersAdded) {
  GemmAlgorithms one, two;
  for (GemmAlgorithms* each : {&one, &two})
    each->use({.path = path}, kHere);
  one.record(kHere, "p", algorithm(1));
  one.record(kHere, "q", algorithm(2));
  two.record(kHere, "q", algorithm(3));
  EXPECT_EQ(one.save_if_grown(path), 2);
  EXPECT_EQ(two.save_if_grown(path), 1);
  EXPECT_EQ(two.save_if_grown(path), 0);
  GemmAlgorithms loaded;
  loaded.load(path, kHere);
  EXPECT_EQ(loaded.find(kHere, "p"), algorithm(1));
  EXPECT_EQ(loaded.find(kHere, "q"), algorithm(3));
  // `fresh`: everything is measured again; other entries stay.
  GemmAlgorithms fresh;
  fresh.use({.path = path, .fresh = true, .required = false}, kHere);
  EXPECT_EQ(fresh.size(), 0);
  EXPECT_FALSE(fresh.must_measure());
  fresh.record(kHere, "q", algorithm(4));
  EXPECT_EQ(fresh.save_if_grown(path), 1);
  loaded.load(path, kHere);
  EXPECT_EQ(loaded.find(kHere, "p"), algorithm(1));
  EXPECT_EQ(loaded.find(kHere, "q"), algorithm(4));
  test::write_file(path, "no table");
  fresh.record(kHere, "r", algorithm(5));
  EXPECT_EQ(fresh.save_if_grown(path), 1);
  loaded.load(path, kHere);
  EXPECT_EQ(loaded.size(), 3);
}

TEST_F(GemmAlgorithmsFile, RefusesFilesThatAreNotTables) {
  EXPECT_THAT(test::message_of<InputError>([&] { GemmAlgorithms().load(path, kHere); }),
              HasSubstr("gemm.json: cannot be read"));
  EXPECT_EQ(load_with("\"p\"", "\"r\""), "no exception");
  EXPECT_THAT(load_with("{", ""), HasSubstr("gemm.json: not a table of GEMM algorithms"));
  EXPECT_THAT(load_with("muograph-gemm", "muograph-gem"), HasSubstr("its format is not"));
  EXPECT_THAT(load_with("\"version\": 1", "\"version\": 2"), HasSubstr("version 2, expected 1"));
  EXPECT_THAT(load_with("\"p\"", "\"q\""), HasSubstr("duplicate entry: q"));
  EXPECT_THAT(load_with("0xf", "0xg"), HasSubstr("is not a hexadecimal word"));
  EXPECT_THAT(load_with("\"0xf", "\"f"), HasSubstr("is not a hexadecimal word"));
  EXPECT_THAT(load_with("\"tile\"", "\"title\""), HasSubstr("not a table of GEMM algorithms"));
  EXPECT_THAT(load_with("\"words\": [", "\"words\": [\"0x0\","), HasSubstr("9 words, expected 8"));
}

TEST_F(GemmAlgorithmsFile, AFailedWriteKeepsTheOldFile) {
  GemmAlgorithms made;
  made.record(kHere, "p", algorithm(1));
  made.save(path);
  const std::string before = test::read_file(path);
  const test::FullDisk disk(10);
  EXPECT_THAT(test::message_of<Error>([&] { made.save(path); }),
              HasSubstr(concat("cannot write ", path.string(), ": ")));
  EXPECT_EQ(test::read_file(path), before);
}

TEST(GemmAlgorithms, BelongToOneEnvironment) {
  GemmAlgorithms table;
  table.record(kHere, "p", algorithm(1));
  const GemmEnvironment other{.library = kHere.library, .gpu = "Another GPU"};
  EXPECT_FALSE(table.record(other, "p", algorithm(2)));
  EXPECT_EQ(table.find(other, "p"), std::nullopt);
  EXPECT_EQ(table.find(kHere, "p"), algorithm(1));
}

TEST(GemmAlgorithms, AreSharedByThreads) {
  GemmAlgorithms table;
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&table, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string mine = concat(t, " ", i);
        table.record(kHere, mine, algorithm(i));
        EXPECT_EQ(table.find(kHere, mine), algorithm(i));
      }
    });
  threads.clear();
  EXPECT_EQ(table.size(), 200);
}

}  // namespace
}  // namespace muo
