#include "cli/document_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/terminal.h"

namespace muo::cli {
namespace {

namespace fs = std::filesystem;

bool lies_in(const fs::path& file, const fs::path& folder) {
  const fs::path whole = fs::weakly_canonical(file);
  return std::ranges::mismatch(folder, whole).in1 == folder.end();
}

}  // namespace

std::vector<data::InputFile> document_files(const std::vector<fs::path>& paths,
                                            const fs::path& out) {
  const data::InputFile standard_input{.path = "-", .named = true, .identity = {}};
  if (paths.empty()) return {standard_input};
  std::vector<fs::path> others = paths;
  const bool reads_standard_input = std::erase(others, "-") > 0;
  std::vector<data::InputFile> files = data::list_files(others).files;
  if (!out.empty())
    std::erase_if(files, [folder = fs::weakly_canonical(out)](const data::InputFile& file) {
      return !file.named && lies_in(file.path, folder);
    });
  if (reads_standard_input) files.push_back(standard_input);
  return files;
}

data::DocumentOptions document_options(const trainer::TextOptions& options) {
  return {.field = options.field,
          .separator = options.separator,
          .skip_bad_lines = options.skip_bad_lines};
}

void print_left_out(const data::DocumentReader& reader) {
  if (const std::string others = reader.left_out().text(); !others.empty())
    say(stdout, fmt::format("left out: {}\n", others));
  if (reader.bad_lines() > 0)
    say(stdout, fmt::format("skipped: {} bad lines\n", reader.bad_lines()));
}

}  // namespace muo::cli
