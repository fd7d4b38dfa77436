#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <string>

#include "support/command.h"
#include "support/files.h"
#include "support/paths.h"

namespace muo::test {

// The scripts in a folder of their own, with a PATH that has a few of this machine's commands and
// the commands that a test adds. The latter may append their arguments to log().
class ScriptClone : public testing::Test {
 protected:
  ScriptClone() {
    for (const auto& folder : {bin_, clone_})
      std::filesystem::create_directories(folder);
    std::filesystem::copy(source_directory() + "/scripts", clone_ / "scripts");
    link({"bash", "cat", "dirname", "flock", "grep", "head", "mkdir", "mv", "paste", "rm", "sed",
          "sort", "tail"});
  }

  void link(std::initializer_list<const char*> commands) {
    for (const std::string command : commands)
      for (const char* folder : {"/usr/bin/", "/bin/"})
        if (std::filesystem::exists(folder + command) && !std::filesystem::exists(bin_ / command))
          std::filesystem::create_symlink(folder + command, bin_ / command);
  }
  static void write_script(const std::filesystem::path& file, const std::string& body) {
    write_file(file, "#!/bin/bash\n" + body + "\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  void add_command(const std::string& name, const std::string& body) {
    write_script(bin_ / name, body);
  }
  // `options`: options, and variable assignments for env. Runs without a terminal, independently of
  // the current folder.
  [[nodiscard]] Outcome run(const std::string& command, const std::string& options = "") const {
    return run_command((clone_ / "scripts" / command).string() + " </dev/null",
                       "env " + options + " PATH=" + bin_.string());
  }
  [[nodiscard]] std::string log() const { return directory_.path() / "log"; }
  [[nodiscard]] std::string done() const {
    return std::filesystem::exists(log()) ? read_file(log()) : "";
  }

  TemporaryDirectory directory_;
  std::filesystem::path bin_ = directory_.path() / "bin", clone_ = directory_.path() / "clone";
};

}  // namespace muo::test
