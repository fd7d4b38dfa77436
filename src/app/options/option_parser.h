#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/config_file.h"
#include "app/options/option_row.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
class Option;
}  // namespace CLI

namespace muo::app {

struct CommandRow {
  std::string_view name;
  std::string_view help;
  std::string_view examples = {};  // a line each, without the program's name
};

// Behind the words of a command line: they are not to be run, but the last of them, perhaps empty,
// is to be completed.
inline constexpr std::string_view kCompleteLast = "--complete-last-word";

// One command's options in CLI11's hands: it splits the command line and formats help; the table
// keeps parsing, ranges and defaults, which config files need as well.
class Parser {
 public:
  Parser(const CommandRow& command, std::vector<OptionRow> rows);
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  ~Parser();

  void add_text(const char* name, std::string& field, const char* value, const char* help);
  void add_flag(const char* name, bool& field, const char* help);

  // Nothing, or what was asked for instead of running anything: help, or how the last word may go
  // on (a line for each way; none: as the name of a file).
  std::optional<std::string> parse(std::span<const char* const> arguments);

  [[nodiscard]] bool is_given(std::string_view name) const;

  // Fills the rows' fields with what the command line gave. Of what is given more than once the
  // last counts, which a line on stderr says; the values of a list follow each other.
  void apply(const TakeValues& take = {}) const;

  // Fills the others from a file. A line on stderr says what a given option replaces in a file that
  // was `named` by the user.
  void apply_config(const std::filesystem::path& file, bool named,
                    const TakeValues& take = {}) const;

 private:
  [[nodiscard]] bool trains() const;
  [[nodiscard]] std::string help(bool all);
  [[nodiscard]] std::string completions(std::span<const char* const> words) const;
  // The word that belongs to no option is the one that may stand alone; of a list, all of them.
  void take_word();
  void refuse_unknown() const;

  std::unique_ptr<CLI::App> app_;
  std::string_view examples_;
  std::vector<OptionRow> rows_;
  std::vector<CLI::Option*> options_;
  // What parse() found: by rows_, and what belongs to none of them.
  std::vector<std::vector<std::string>> given_;
  std::vector<std::string> extras_;
  std::vector<std::string> words_;  // behind "--", which begins no option
};

}  // namespace muo::app
