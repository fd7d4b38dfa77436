#include "trainer/options/option_parser.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/terminal.h"
#include "trainer/options/foreign_options.h"
#include "trainer/options/option_table.h"

namespace muo::trainer {
namespace {

constexpr const char* kOtherGroup = "Other";
constexpr std::string_view kRequired = "(required)";

// Formats "--depth N    layers [4]": the default follows the first line of the description.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(36); }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string value = option->get_type_name();
    return value.empty() ? "" : " " + value;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string text = option->get_default_str();
    const std::string tail = text.empty() ? "" : text == kRequired ? " " + text : " [" + text + "]";
    std::string description = option->get_description();
    return description.insert(std::min(description.find('\n'), description.size()), tail);
  }
  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    return "Usage: muograph " + app->get_name() + " " + positional + "[OPTIONS]\n";
  }

  std::string positional;  // placeholder of the positional option: "DIR "
};

void note_repeated(std::string_view name, std::size_t times, std::string_view last) {
  say(stderr,
      fmt::format("muograph: note: {} is given {} times; using the last, {}\n", name, times, last));
}

// Accepts underscores in option names, as nanochat does (--device_batch_size).
std::string with_dashes(std::string argument) {
  if (argument.rfind("--", 0) == 0)
    std::replace(argument.begin(),
                 argument.begin() +
                     static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size())),
                 '_', '-');
  return argument;
}

std::string examples_of(const CommandRow& command) {
  std::string out;
  for (std::string_view rest = command.examples; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    out += fmt::format("{}  muograph {}\n", out.empty() ? "Examples:\n" : "", rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

// "-" is an argument: the name of standard input.
bool is_word(const std::string& extra) { return extra == "-" || !extra.starts_with('-'); }

}  // namespace

Parser::Parser(const CommandRow& command, std::vector<OptionRow> rows)
    : app_(std::make_unique<CLI::App>(std::string(command.help), std::string(command.name))),
      examples_(command.examples),
      rows_(std::move(rows)) {
  const auto formatter = std::make_shared<HelpFormatter>();
  app_->formatter(formatter);
  app_->set_help_flag();  // parse() adds --help, so that it is listed last
  app_->footer(examples_of(command));
  app_->allow_extras();
  for (const OptionRow& row : rows_) {
    const std::string letter = row.letter.empty() ? "" : std::string(row.letter) + ",";
    CLI::Option* option = app_->add_option(letter + "--" + std::string(row.name));
    option->description(std::string(row.help) + row.choices_help)
        ->group(std::string(row.group))
        ->type_name(std::string(row.value))
        ->default_str(row.required ? std::string(kRequired) : option_text(row));
    if (row.positional) formatter->positional = std::string(row.value) + " ";
    option->expected(1, is_list(row) ? -1 : 1);
    // Otherwise CLI11 ends an unlimited list after one value.
    option->allow_extra_args(is_list(row));
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    options_.push_back(option);
  }
}

Parser::~Parser() = default;

void Parser::add_text(const char* name, std::string& field, const char* value, const char* help) {
  app_->add_option(name, field, help)->type_name(value)->group(kOtherGroup)->take_last();
}

void Parser::add_flag(const char* name, bool& field, const char* help) {
  app_->add_flag(name, field, help)->group(kOtherGroup);
}

std::optional<std::string> Parser::parse(std::span<const char* const> arguments) {
  app_->set_help_flag("-h,--help", "print this and exit")->group(kOtherGroup);
  if (trains()) app_->set_help_all_flag("--help-all", "print every option")->group(kOtherGroup);
  if (!arguments.empty() && arguments.back() == kCompleteLast)
    return completions(arguments.first(arguments.size() - 1));
  const auto is_end = [](const char* argument) { return std::string_view(argument) == "--"; };
  const auto end = std::ranges::find_if(arguments, is_end);
  words_.assign(end == arguments.end() ? end : std::next(end), arguments.end());
  arguments = {arguments.begin(), end};
  std::vector<std::string> reversed;  // CLI11 takes arguments in reverse order
  for (const char* argument : arguments)
    reversed.push_back(with_dashes(argument));
  std::ranges::reverse(reversed);
  try {
    app_->parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return help(/*all=*/!trains());
  } catch (const CLI::CallForAllHelp&) {
    return help(/*all=*/true);
  } catch (const CLI::ArgumentMismatch&) {
    // The option is the last argument: otherwise it would have taken the next word as its value.
    const std::string name = with_dashes(arguments.back());
    const CLI::Option* const option = app_->get_option_no_throw(name);
    throw input_error("{}: {}{} needs a value", app_->get_name(), name,
                      option == nullptr ? "" : " " + option->get_type_name());
  } catch (const CLI::ParseError& error) {
    throw input_error("{}: {}", app_->get_name(), error.what());
  }
  take_positional();
  refuse_unknown();
  if (const CLI::Option* const config = app_->get_option_no_throw("--config");
      config != nullptr && config->count() > 1)
    note_repeated("--config", config->count(), config->as<std::string>());
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].required && given_[i].empty())
      throw input_error(
          "{}: {}{} is required: {}{}{}", app_->get_name(), rows_[i].positional ? "" : "--",
          rows_[i].positional ? rows_[i].value : rows_[i].name, rows_[i].help,
          examples_.empty() ? "" : ", as in muograph ", examples_.substr(0, examples_.find('\n')));
  return std::nullopt;
}

bool Parser::is_given(std::string_view name) const {
  const auto row = std::ranges::find(rows_, name, &OptionRow::name);
  return row != rows_.end() && !given_[static_cast<std::size_t>(row - rows_.begin())].empty();
}

void Parser::apply(const TakeValues& take) const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    std::span<const std::string> values = given_[i];
    if (values.empty()) continue;
    const std::string name = "--" + std::string(rows_[i].name);
    if (values.size() > 1 && !is_list(rows_[i]) && !is_repeated(rows_[i])) {
      note_repeated(name, values.size(), values.back());
      values = values.last(1);
    }
    if (!take || !take(rows_[i], values, name)) set_option(rows_[i], values, name);
  }
}

void Parser::apply_config(const std::filesystem::path& file, bool named,
                          const TakeValues& take) const {
  const std::vector<TomlEntry> entries = read_config(file);
  // True if the command line sets the option to values other than those of the file.
  const auto changed = [&](std::size_t i) {
    const auto entry = std::ranges::find(entries, rows_[i].name, &TomlEntry::key);
    return !given_[i].empty() && (entry == entries.end() || entry->values != given_[i]);
  };
  load_config(file, entries, rows_, [&](const OptionRow& row, auto values, std::string_view where) {
    if (is_given(row.name)) return true;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (std::ranges::find(rows_[i].replaces, row.name) == rows_[i].replaces.end()) continue;
      if (!changed(i)) continue;
      if (named)
        say(stderr, fmt::format("muograph: note: {} {} is ignored because --{} is given\n", where,
                                fmt::join(values, " "), rows_[i].name));
      return true;
    }
    return take && take(row, values, where);
  });
}

bool Parser::trains() const {
  return std::ranges::find(rows_, "matrix-lr", &OptionRow::name) != rows_.end();
}

std::string Parser::help(bool all) {
  TrainOptions run;
  if (!all)
    for (const OptionRow& row : option_table(run))
      if (std::ranges::find(kUsualOptions, row.name) == kUsualOptions.end())
        if (CLI::Option* const option = app_->get_option_no_throw(fmt::format("--{}", row.name)))
          option->group("");  // CLI11 hides options without a group
  // CLI11 leaves two blank lines between groups.
  std::string text = app_->help();
  for (auto at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n"))
    text.erase(at, 1);
  return text;
}

std::string Parser::completions(std::span<const char* const> words) const {
  const std::string_view last = words.empty() ? "" : words.back();
  const std::string_view before = words.size() < 2 ? "" : words[words.size() - 2];
  std::string out;
  const auto offer = [&](std::string_view word) {
    if (word.starts_with(last)) out += fmt::format("{}\n", word);
  };
  const auto row = std::ranges::find_if(rows_, [&](const OptionRow& candidate) {
    return before.starts_with("--") && candidate.name == before.substr(2);
  });
  if (row != rows_.end() && !last.starts_with("-")) {
    for (const std::string_view value : values_of(*row))
      offer(value);
  } else if (before != "--config" || last.starts_with("-")) {
    for (const CLI::Option* option : app_->get_options())
      offer("--" + option->get_lnames().at(0));
  }
  return out;
}

void Parser::take_positional() {
  extras_ = app_->remaining();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    given_.push_back(options_[i]->results());
    if (!rows_[i].positional || !given_[i].empty()) continue;
    for (auto word = std::ranges::find_if(extras_, is_word);
         word != extras_.end() && (given_[i].empty() || is_list(rows_[i]));
         word = std::ranges::find_if(extras_, is_word)) {
      given_[i].push_back(*word);
      extras_.erase(word);
    }
    while (!words_.empty() && (given_[i].empty() || is_list(rows_[i]))) {
      given_[i].push_back(words_.front());
      words_.erase(words_.begin());
    }
  }
  extras_.insert(extras_.end(), words_.begin(), words_.end());
}

void Parser::refuse_unknown() const {
  if (extras_.empty()) return;
  const auto first = std::ranges::find_if_not(extras_, is_word);
  if (first == extras_.end()) {
    std::error_code none;
    const bool is_data = std::filesystem::exists(extras_[0], none) &&
                         std::ranges::find(rows_, "data", &OptionRow::name) != rows_.end();
    const bool is_config =
        extras_[0].ends_with(".toml") && app_->get_option_no_throw("--config") != nullptr;
    throw input_error("{}: unexpected argument '{}'{}", app_->get_name(), extras_[0],
                      is_config || is_data ? fmt::format("; did you mean --{} {}?",
                                                         is_config ? "config" : "data", extras_[0])
                                           : "");
  }
  const std::string name = first->substr(0, first->find('='));
  // In commands that do not train, a counterpart among the training options is no help.
  if (const std::string here = foreign_option(name);
      !here.empty() && (trains() || here.find("here --") == std::string::npos))
    throw input_error("{}: unknown option {}: {}", app_->get_name(), name, here);
  std::vector<std::string_view> names;
  for (const CLI::Option* option : app_->get_options())
    if (!option->get_lnames().empty()) names.emplace_back(option->get_lnames()[0]);
  const std::string_view near =
      nearest_name(std::string_view(name).substr(name.find_first_not_of('-') == 1 ? 1 : 2), names);
  throw input_error("{}: unknown option {}{}", app_->get_name(), name,
                    near.empty() ? fmt::format(" (muograph {} --help{} lists the options)",
                                               app_->get_name(), trains() ? "-all" : "")
                                 : fmt::format("; did you mean --{}?", near));
}

}  // namespace muo::trainer
