#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace muo::cli {

// Throws InputError if `option`'s file cannot be written. Check this first: the file is written
// late.
void require_writable(std::string_view option, const std::filesystem::path& file);

// The destination of --result: a file, or standard output for "-", which then gets nothing else:
// everything else that is printed goes to standard error. Does nothing if the path is empty.
class ResultFile {
 public:
  explicit ResultFile(std::string path);
  // Writes the result in one line. Throws WriteError.
  void write(const nlohmann::ordered_json& result) const;

 private:
  const std::string path_;
  FileDescriptor output_;  // the standard output that "-" means
};

}  // namespace muo::cli
