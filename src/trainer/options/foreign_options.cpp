#include "trainer/options/foreign_options.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/installed_file.h"
#include "base/split.h"

namespace muo::trainer {
namespace {

// Returns the parts of a table cell that are in `backquotes`.
std::vector<std::string_view> code_of(std::string_view cell) {
  const std::vector<std::string_view> pieces = split(cell, "`");
  std::vector<std::string_view> out;
  for (std::size_t i = 1; i < pieces.size(); i += 2)
    out.push_back(pieces[i]);
  return out;
}

// Returns the option that `code` sets: "--head-dim" for "--head_dim 64".
std::string option_of(std::string_view code) {
  std::string option(code.substr(0, code.find(' ')));
  std::ranges::replace(option, '_', '-');
  return option;
}

// Returns the cell as plain text for a terminal, without markup of code and links.
std::string plain(std::string_view cell) {
  std::string out;
  for (std::size_t at = 0; at < cell.size(); ++at) {
    if (cell[at] == '(' && at > 0 && cell[at - 1] == ']')
      at = cell.find(')', at);
    else if (std::string_view("`[]").find(cell[at]) == std::string_view::npos)
      out += cell[at];
  }
  return out;
}

}  // namespace

std::string foreign_option(std::string_view name) {
  std::string_view program;
  for (const std::string_view line : split(kComingFrom, "\n")) {
    if (line.starts_with("## ")) program = line.substr(3);
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string_view> cells = split(line.substr(2), " | ");
    const std::vector<std::string_view> theirs = code_of(cells[0]);
    const auto found = std::ranges::find(theirs, name, option_of);
    if (found == theirs.end() || cells.size() < 2 || cells[1] == "the same") continue;
    const std::vector<std::string_view> ours = code_of(cells[1]);
    const auto at = static_cast<std::size_t>(found - theirs.begin());
    std::string out = program == "Other programs" ? "" : concat(program, "'s, ");
    out += ours.empty() ? "which has no counterpart here"
                        : concat("here ", ours.size() == theirs.size() ? std::string(ours[at])
                                                                       : plain(cells[1]));
    constexpr std::string_view kScripts = "scripts/";
    if (const std::size_t script = out.find(kScripts); script != std::string::npos) {
      const std::size_t end = std::min(out.find(' ', script), out.size());
      out.replace(script, end - script, installed_word(out.substr(script, end - script)));
    }
    std::string remark = cells.size() < 3 ? "" : plain(cells[2]);
    remark.resize(std::min(remark.find(". "), remark.find_last_not_of(" |") + 1));
    return remark.empty() ? out : concat(out, ": ", remark);
  }
  return {};
}

}  // namespace muo::trainer
