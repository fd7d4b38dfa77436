#include "app/document_files.h"

#include "base/check.h"
#include "data/input_files.h"

namespace muo {

std::vector<std::filesystem::path> document_files(const std::vector<std::filesystem::path>& paths) {
  if (paths.empty()) return {"-"};
  std::vector<std::filesystem::path> out;
  for (const std::filesystem::path& path : paths) {
    if (path == "-") {
      out.push_back(path);
      continue;
    }
    for (const InputFile& file : list_files({{path}}).files) {
      if (file.path.extension() == ".parquet")
        throw InputError(concat(file.path.native(),
                                " is Parquet, not text; give - for standard input: "
                                "scripts/read_parquet.py FILE | muograph ... -"));
      out.push_back(file.path);
    }
  }
  return out;
}

}  // namespace muo
