// Runs the fuzz targets on their corpus and on all inputs that differ from it in one byte. Inputs
// found by fuzzing are kept in the corpus as regression tests.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "fuzz/targets.h"
#include "support/files.h"
#include "support/paths.h"

namespace muo::test {
namespace {

namespace fs = std::filesystem;

struct Sample {
  std::string name, bytes;
};

// Reads a file of the corpus. A file named *.edit has three lines: the name of another file, a
// piece of that file, and the replacement for the piece.
Sample sample_of(const fs::path& file) {
  std::string bytes = read_file(file);
  if (file.extension() != ".edit") return {file.filename(), bytes};
  std::istringstream lines(bytes);
  std::string base, piece, other;
  std::getline(lines, base);
  std::getline(lines, piece);
  std::getline(lines, other);
  bytes = read_file(file.parent_path() / base);
  std::size_t at = bytes.find(piece);
  EXPECT_NE(at, std::string::npos) << file;
  for (; at != std::string::npos; at = bytes.find(piece, at + other.size()))
    bytes.replace(at, piece.size(), other);
  return {file.filename(), bytes};
}

class Corpus : public testing::TestWithParam<fuzz::Target> {
 protected:
  [[nodiscard]] static std::vector<Sample> samples() {
    std::set<fs::path> sorted;
    for (const auto& entry : fs::directory_iterator(fs::path(source_directory()) /
                                                    "tests/fuzz/corpus" / GetParam().name))
      sorted.insert(entry.path());
    std::vector<Sample> out;
    out.reserve(sorted.size());
    for (const fs::path& file : sorted)
      out.push_back(sample_of(file));
    return out;
  }
  static bool run(const std::string& bytes) {
    return GetParam().run(std::as_bytes(std::span(bytes)));
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Corpus,
                         testing::ValuesIn(fuzz::targets().begin(), fuzz::targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

// Files named good... must be accepted, all others rejected.
TEST_P(Corpus, IsAcceptedOrRejectedAsItsNamesSay) {
  int good = 0;
  for (const auto& [name, bytes] : samples()) {
    const bool accepted = name.starts_with("good");
    EXPECT_EQ(run(bytes), accepted) << name;
    good += accepted ? 1 : 0;
  }
  EXPECT_GT(good, 0) << "a target that refuses everything tests nothing";
}

TEST_P(Corpus, ChangedInOneByteOrTruncatedIsAcceptedOrRejected) {
  constexpr std::size_t kSteps = 400;  // per file, at most
  for (const auto& [name, bytes] : samples()) {
    const std::size_t stride = 1 + bytes.size() / kSteps;
    for (std::size_t at = 0; at < bytes.size(); at += stride) {
      EXPECT_NO_THROW(run(bytes.substr(0, at))) << name << " cut to " << at << " bytes";
      for (const unsigned flip : {0x01U, 0x10U, 0x80U, 0xFFU}) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ flip);
        EXPECT_NO_THROW(run(changed)) << name << ", byte " << at << " flipped by " << flip;
      }
    }
  }
}

}  // namespace
}  // namespace muo::test
