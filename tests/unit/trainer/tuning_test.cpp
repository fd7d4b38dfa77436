#include "trainer/run/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/gemm.h"
#include "support/environment.h"
#include "support/files.h"
#include "support/several_processes.h"

namespace muo::trainer {
namespace {

using testing::HasSubstr;

// The table of a fake library: a letter that names the GPU, then "product=algorithm;" for each
// product.
std::string& table() {
  static std::string text;
  return text;
}

bool adopt(const std::string& other) {
  if (other.front() != table().front()) return false;
  std::string added;  // existing entries take precedence
  for (std::size_t at = 1; at < table().size(); at = table().find(';', at) + 1)
    if (const std::string entry = table().substr(at, table().find(';', at) + 1 - at);
        other.find(entry.substr(0, entry.find('=') + 1)) == std::string::npos)
      added += entry;
  table() = other + added;
  return true;
}

void register_library(const std::string& measured) {
  table() = measured;
  register_gemm_backend(
      {.use_table = [](const GemmTableUse& /*use*/) {},
       .save_table = [](const std::filesystem::path& /*path*/) { return std::size_t{0}; },
       .environment = [] { return std::string("a library"); },
       .table_text = [] { return table(); },
       .adopt_table = &adopt});
}

std::string table_after_agreement(ProcessGroup& processes, const std::string& measured, Tune tune) {
  const test::TemporaryDirectory folder;
  const test::ScopedEnvironment cache("XDG_CACHE_HOME", folder.path().string());
  register_library(measured);
  RunConfig config;
  config.tune = tune;
  Tuning tuning(config);
  tuning.agree(&processes);
  return table();
}

TEST(Tuning, ProcessesUseTheAlgorithmOfTheFirstThatMeasured) {
  const auto ends = test::in_processes({1, 1, 1}, [](ProcessGroup& processes) {
    const std::string measured[] = {"gA=0;B=0;", "gB=1;C=1;", "gA=2;C=2;D=2;"};
    return table_after_agreement(processes, measured[processes.process()], Tune::kOnce);
  });
  for (const test::ProcessEnd& end : ends) {
    EXPECT_EQ(end.code, 0);
    for (const char* entry : {"A=0;", "B=0;", "C=1;", "D=2;"})
      EXPECT_THAT(end.said, HasSubstr(entry));
    EXPECT_EQ(end.said.size(), 17U) << end.said;
  }
}

TEST(Tuning, OfDifferentGpusIsRejectedUnlessOff) {
  const auto ends = test::in_processes({1, 1}, [](ProcessGroup& processes) {
    const std::string measured = processes.is_first() ? "gA=0;" : "hA=1;";
    EXPECT_EQ(table_after_agreement(processes, measured, Tune::kOff), measured);
    try {
      return table_after_agreement(processes, measured, Tune::kOnce);
    } catch (const InputError& error) {
      processes.fail(error.what(), 2);
      throw;
    }
  });
  for (const test::ProcessEnd& end : ends)
    EXPECT_THAT(end.said, HasSubstr("has another GPU or cuBLASLt than process 0"));
}

}  // namespace
}  // namespace muo::trainer
