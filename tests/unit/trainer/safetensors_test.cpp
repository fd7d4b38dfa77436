#include "trainer/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "support/files.h"
#include "support/golden.h"

namespace muo::trainer {
namespace {

using test::TemporaryDirectory;
using test::write_file;
using testing::HasSubstr;

const std::vector<SafetensorsSpec> kSpecs = {
    {.name = "b.weight", .dtype = DType::kF32, .shape = {2, 3}},
    {.name = "a.tokens", .dtype = DType::kBytes, .shape = {5}},
    {.name = "a.weight", .dtype = DType::kF32, .shape = {}},
    {.name = "empty", .dtype = DType::kBF16, .shape = {0, 7}},
    {.name = "total", .dtype = DType::kF64, .shape = {2}},
};

// A file of kSpecs whose data bytes count up.
std::string valid_file() {
  const SafetensorsLayout layout = layout_safetensors(kSpecs, {{"format", "pt"}});
  std::string file(static_cast<std::size_t>(layout.file_bytes), '\0');
  std::iota(file.begin(), file.end(), static_cast<char>(-layout.head.size()));
  std::memcpy(file.data(), layout.head.data(), layout.head.size());
  return file;
}

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

// Returns the message with which `contents` are rejected, or "" if they are accepted.
std::string refusal(const std::string& contents) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "x.safetensors";
  write_file(path, contents);
  try {
    const SafetensorsFile file(path);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

// Python's package `safetensors` 0.8.0 reads these bytes as the same names, types and values.
TEST(SafetensorsLayout, IsTheDocumentedBytes) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("total":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
                             R"("a.weight":{"dtype":"F32","shape":[],"data_offsets":[16,20]},)"
                             R"("b.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[20,44]},)"
                             R"("empty":{"dtype":"BF16","shape":[0,7],"data_offsets":[44,44]},)"
                             R"("a.tokens":{"dtype":"U8","shape":[5],"data_offsets":[44,49]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string file = valid_file();
  EXPECT_EQ(file.substr(0, 8 + padded.size()), file_of(padded, ""));
  EXPECT_EQ(file.size(), 8 + padded.size() + 49);
  EXPECT_EQ((8 + padded.size()) % 8, 0U);
}

TEST(SafetensorsLayout, DoesNotDependOnTheOrderOfTheTensors) {
  const std::vector<SafetensorsSpec> reversed(kSpecs.rbegin(), kSpecs.rend());
  EXPECT_EQ(layout_safetensors(kSpecs, {}).head, layout_safetensors(reversed, {}).head);
}

TEST(SafetensorsLayout, RefusesWhatItCouldNotReadBack) {
  const auto layout = [](std::vector<SafetensorsSpec> specs) {
    return layout_safetensors(specs, {});
  };
  EXPECT_THROW(
      layout(
          {{.name = "a", .shape = {1}}, {.name = "b", .shape = {1}}, {.name = "a", .shape = {1}}}),
      Error);
  EXPECT_THROW(layout({{.name = "../a", .shape = {1}}}), Error);
  EXPECT_THROW(layout({{.name = "__metadata__", .shape = {1}}}), Error);
  EXPECT_THROW(layout({{.name = "a", .shape = {-1}}}), Error);
  EXPECT_THROW(layout({{.name = "a", .shape = {1LL << 40, 1LL << 40}}}), Error);
}

TEST(SafetensorsFile, ReadsBackTheLayout) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "x.safetensors";
  write_file(path, valid_file());
  const SafetensorsFile file(path);
  ASSERT_EQ(file.entries().size(), kSpecs.size());
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  for (const SafetensorsSpec& spec : kSpecs) {
    const SafetensorsEntry* const entry = file.find(spec.name);
    ASSERT_NE(entry, nullptr) << spec.name;
    EXPECT_EQ(entry->spec.dtype, spec.dtype);
    EXPECT_EQ(entry->spec.shape, spec.shape);
    EXPECT_EQ(static_cast<std::int64_t>(file.bytes(*entry).size()),
              spec.shape.numel() * size_of(spec.dtype));
  }
  EXPECT_EQ(file.bytes(*file.find("a.tokens")).front(), std::byte{44});
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(SafetensorsFile, RefusesHostileHeadersNamingWhatIsWrong) {
  const auto tensor = [](const std::string& body) { return R"({"w":)" + body + "}"; };
  const std::string four(4, '\0');
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  ASSERT_EQ(refusal(file_of(tensor(good), four)), "");

  const auto expect = [](const std::string& contents, const std::string& reason) {
    EXPECT_THAT(refusal(contents), HasSubstr(reason));
  };
  expect("", "too few");
  expect(file_of("", ""), "no JSON header");
  expect(std::string(8, '\xff') + "{}", "a header of 18446744073709551615 bytes");
  expect(file_of(tensor(good), four).substr(0, 20), "truncated");
  expect(file_of(tensor(good), "abc"), "truncated");
  expect(file_of(tensor(good), "abcde"), "the tensors need 4 bytes, the file holds 5");
  expect(file_of(tensor(good).substr(0, 30), four), "malformed JSON");
  expect(file_of("[1]", four), "no JSON header");
  expect(file_of("{\"\xff\":1}", four), "malformed JSON");
  expect(file_of(R"({"w":)" + good + R"(,"w":)" + good + "}", four), "\"w\" occurs twice");
  expect(file_of(tensor(std::string(100000, '[')), four), "nested deeper");
  expect(file_of(R"({"__metadata__":{"a":1}})", ""), "object of strings");
  expect(file_of(R"({"__metadata__":null})", ""), "object of strings");

  expect(file_of(tensor("7"), four), "needs exactly");
  expect(file_of(tensor(R"({"dtype":"F32","shape":[1]})"), four), "needs exactly");
  const auto entry = [&](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return file_of(tensor(R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" +
                          offsets + "}"),
                   four);
  };
  expect(entry(R"("F33")", "[1]", "[0,4]"), "the dtype \"F33\"");
  expect(entry("3", "[1]", "[0,4]"), "the dtype 3");
  expect(entry(R"("F32")", "[1,1,1,1,1]", "[0,4]"), "at most four axes");
  expect(entry(R"("F32")", "1", "[0,4]"), "at most four axes");
  expect(entry(R"("F32")", "[2]", "[0,4]"), "do not match its shape");
  expect(entry(R"("F32")", "[-1]", "[0,4]"), "not a whole number");
  expect(entry(R"("F32")", "[1.0]", "[0,4]"), "not a whole number");
  expect(entry(R"("F32")", R"(["1"])", "[0,4]"), "not a whole number");
  expect(entry(R"("F32")", "[1]", "[4,0]"), "ends before it begins");
  expect(entry(R"("F32")", "[1]", "[0]"), "needs data_offsets");
  expect(entry(R"("F32")", "[1]", "[4,8]"), "begins at byte 4");
  expect(entry(R"("F32")", "[18446744073709551615]", "[0,4]"), "impossible size");
  // 4 * 2^62 and 2^32 * 2^32 are 0 modulo 2^64.
  expect(entry(R"("F32")", "[4611686018427387904]", "[0,0]"), "do not match its shape");
  expect(entry(R"("F32")", "[4294967296,4294967296]", "[0,0]"), "do not match its shape");
  expect(entry(R"("F32")", "[1]", "[9223372036854775804,9223372036854775808]"), "impossible size");

  const auto pair = [&good](const std::string& second) {
    return file_of(R"({"v":)" + good + R"(,"w":)" + second + "}", std::string(8, '\0'));
  };
  ASSERT_EQ(refusal(pair(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})")), "");
  expect(pair(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "an overlap or a hole");
  expect(pair(R"({"dtype":"U8","shape":[3],"data_offsets":[5,8]})"), "an overlap or a hole");
}

TEST(SafetensorsFile, RefusesNamesThatArePaths) {
  const auto named = [](const std::string& name) {
    return refusal(
        file_of("{\"" + name + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", ""));
  };
  for (const char* const fine : {"a", "grad/a.b", "..a", "a..b/c.."})
    EXPECT_EQ(named(fine), "") << fine;
  for (const char* const bad :
       {"", "/etc/passwd", "..", "../a", "a/../b", "a/..", "./a", "C:\\\\a", "a\\nb", "a\\u0000"})
    EXPECT_THAT(named(bad), HasSubstr("the name")) << bad;
}

TEST(SafetensorsFile, RejectsDirectoriesAndMissingFiles) {
  const TemporaryDirectory directory;
  EXPECT_THROW(SafetensorsFile(directory.path()), InputError);
  EXPECT_THROW(SafetensorsFile(directory.path() / "absent"), InputError);
}

// Whatever its bytes, a file is rejected, or all its tensors are within its bounds.
TEST(SafetensorsFile, SurvivesRandomDamage) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "x.safetensors";
  const std::string original = valid_file();
  const std::size_t head = original.size() - 49;
  constexpr int kTrials = 600;
  int refused = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const CounterRandom random(static_cast<std::uint64_t>(trial), "damage");
    std::string damaged = original;
    const std::uint64_t changes = 1 + random.bits(0) % 3;
    for (std::uint64_t change = 0; change < changes; ++change) {
      const std::size_t at = random.bits(10 * change + 1) % head;
      const char byte = "0123456789\"{}[],:-e\\ \xff"[random.bits(10 * change + 2) % 22];
      switch (random.bits(10 * change + 3) % 4) {
        case 0:
          damaged[std::min(at, damaged.size() - 1)] = byte;
          break;
        case 1:
          damaged.insert(std::min(at, damaged.size()), 1, byte);
          break;
        case 2:
          damaged.erase(std::min(at, damaged.size() - 1), 1);
          break;
        default:
          damaged.resize(std::max<std::size_t>(1, damaged.size() - at % 64));
      }
    }
    write_file(path, damaged);
    try {
      const SafetensorsFile file(path);
      std::size_t bytes = 0;
      for (const SafetensorsEntry& entry : file.entries())
        bytes += file.bytes(entry).size();
      EXPECT_EQ(bytes + file.head().size(), damaged.size());
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kTrials / 2);
  EXPECT_LT(refused, kTrials);  // some damage, as in a name, leaves a valid file
}

TEST(Golden, GivesTensorsWithShapesAndMetadata) {
  const test::Golden golden("gpt_plain.safetensors");
  const std::int64_t vocab = golden.metadata_integer("vocab_size");
  const Shape shape = golden.shape("grad/transformer.wte.weight");
  EXPECT_GE(shape[0], vocab);
  const std::vector<double> doubles = golden.doubles("grad/transformer.wte.weight");
  const std::vector<float> floats = golden.floats("grad/transformer.wte.weight");
  ASSERT_EQ(static_cast<std::int64_t>(doubles.size()), shape.numel());
  for (std::size_t i = 0; i < doubles.size(); ++i)
    ASSERT_EQ(floats[i], static_cast<float>(doubles[i]));
  EXPECT_THROW(static_cast<void>(golden.doubles("absent")), Error);
  EXPECT_THROW(static_cast<void>(golden.integers("loss")), Error);
}

}  // namespace
}  // namespace muo::trainer
