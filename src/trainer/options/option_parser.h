#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/config_file.h"
#include "trainer/options/option_row.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
class Option;
}  // namespace CLI

namespace muo::trainer {

struct CommandRow {
  std::string_view name;
  std::string_view help;
  std::string_view examples = {};  // one per line, without the program's name
};

// As the last argument of a command line: complete the preceding word, which may be empty, instead
// of running the command.
inline constexpr std::string_view kCompleteLast = "--complete-last-word";

// Parses the options of one command. CLI11 splits the command line and formats the help; values,
// ranges and defaults come from the option table, as for config files.
class Parser {
 public:
  Parser(const CommandRow& command, std::vector<OptionRow> rows);
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  ~Parser();

  void add_text(const char* name, std::string& field, const char* value, const char* help);
  void add_flag(const char* name, bool& field, const char* help);

  // Returns the text to print instead of running the command: help, or the completions of the last
  // word, one per line (none: complete it as a file name). Empty if the command is to be run.
  std::optional<std::string> parse(std::span<const char* const> arguments);

  [[nodiscard]] bool is_given(std::string_view name) const;

  // Sets the rows' fields to the values of the command line. If an option is given more than once,
  // the last value is used, with a note on stderr; the values of a list are concatenated.
  void apply(const TakeValues& take = {}) const;

  // Sets the fields that the command line did not set to the values of a file. If the user `named`
  // the file, a note on stderr lists each value of the file that an option of the command line
  // replaces.
  void apply_config(const std::filesystem::path& file, bool named,
                    const TakeValues& take = {}) const;

 private:
  [[nodiscard]] bool trains() const;
  [[nodiscard]] std::string help(bool all);
  [[nodiscard]] std::string completions(std::span<const char* const> words) const;
  // Assigns words without an option name to the positional option: one word, or all if it is a
  // list.
  void take_positional();
  void refuse_unknown() const;

  std::unique_ptr<CLI::App> app_;
  std::string_view examples_;
  std::vector<OptionRow> rows_;
  std::vector<CLI::Option*> options_;
  // Results of parse().
  std::vector<std::vector<std::string>> given_;  // by rows_
  std::vector<std::string> extras_;              // arguments of no option
  std::vector<std::string> words_;               // arguments after "--"
};

}  // namespace muo::trainer
