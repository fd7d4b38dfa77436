#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/files.h"
#include "support/program.h"
#include "system/run_files.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muo {

// Runs training as a user does, on a text of a few kilobytes.
class Training : public testing::Test {
 protected:
  Training() { test::write_text(text_, 900); }

  [[nodiscard]] std::filesystem::path path(const std::string& name) const {
    return directory_.path() / name;
  }
  // The options of these tests, overridden and extended by `more`.
  [[nodiscard]] std::string options(const std::string& out, const std::string& more = "") const {
    std::string command = "train --data " + text_.string() + " --out " + path(out).string();
    for (const char* option :
         {"--model plain", "--depth 1", "--n-embd 32", "--n-head 2", "--max-seq-len 32",
          "--total-batch-size 768", "--device-batch-size 4", "--num-iterations 20",
          "--warmup-steps 5", "--eval-every 10", "--eval-tokens 640", "--sample-every -1",
          "--devices 2", "--matrix-lr 0.3", "--embedding-lr 2", "--unembedding-lr 0.2"}) {
      const std::string text = option;
      if (more.find(text.substr(0, text.find(' ') + 1)) == std::string::npos) command += " " + text;
    }
    return command + " " + more;
  }
  test::Outcome train(const std::string& out, const std::string& more = "") {
    test::Outcome outcome = test::run_program(options(out, more));
    if (outcome.code != 0) throw Error("exit code not 0: " + outcome.err + outcome.out);
    return outcome;
  }
  [[nodiscard]] std::vector<nlohmann::json> metrics(const std::string& out,
                                                    const std::string& kind) const {
    return test::metrics_of(path(out), kind);
  }
  [[nodiscard]] std::vector<double> losses(const std::string& out) const {
    std::vector<double> values;
    for (const nlohmann::json& record : metrics(out, "train"))
      values.push_back(record["loss"]);
    MUO_CHECK(!values.empty(), "no steps in the log of ",
              out);  // empty lists would always be equal
    return values;
  }
  [[nodiscard]] std::string tensors(const std::string& out, std::int64_t step) const {
    const std::filesystem::path checkpoint = trainer::checkpoint_directory(path(out), step);
    return test::read_file(checkpoint / "model.safetensors") +
           test::read_file(checkpoint / "optimizer.safetensors");
  }

  // Writes a .bin shard of these tokens.
  [[nodiscard]] std::filesystem::path shard(const std::string& name,
                                            const std::vector<std::uint16_t>& tokens) const {
    std::vector<std::int32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = static_cast<std::int32_t>(tokens.size());
    std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
    bytes.append(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
    test::write_file(path(name), bytes);
    return path(name);
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path text_ = directory_.path() / "text.txt";
};

}  // namespace muo
