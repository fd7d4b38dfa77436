// Folders and files whose names are not UTF-8, although JSON must be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/command.h"
#include "support/files.h"
#include "support/paths.h"
#include "system/run_files.h"

namespace muo {
namespace {

namespace fs = std::filesystem;

TEST(FileNames, NeedNotBeUtf8) {
  const test::TemporaryDirectory directory;
  const fs::path here = directory.path() / "caf\xE9";
  fs::create_directories(here / "text");
  test::write_text(here / "text" / "\xFF.txt", 900);
  const std::string sizes =
      " --backend host --devices 2 --model plain --depth 1 --n-embd 32 --n-head 1 --max-seq-len 32 "
      "--total-batch-size 128 --num-iterations 2 --eval-every 1 --sample-every 2 ";
  for (const std::string& command : std::vector<std::string>{
           "train --data text --out run" + sizes, "train --resume run --num-iterations 3",
           "eval run --json", "sample run --prompt line --max-tokens 3", "checkpoint inspect run",
           "checkpoint verify run", "checkpoint export run --hf-code hf",
           "sweep --data text --out sweep --matrix-lr 0.1,0.2" + sizes, "report --text run",
           "report --text sweep", "plan --data text --json" + sizes,
           "bench optimizer --steps 1 --json" + sizes,
           "tokenize text --tokenizer byte --out shards",
           "train --data shards --out other" + sizes}) {
    const test::Outcome outcome =
        test::run_command("cd '" + here.native() + "' && " + test::program() + " " + command);
    EXPECT_EQ(outcome.code, 0) << command << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, testing::Not(testing::HasSubstr("json.exception"))) << command;
  }
}

}  // namespace
}  // namespace muo
