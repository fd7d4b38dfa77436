#include "cli/result_file.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/durable_files.h"
#include "base/json_text.h"
#include "base/system_error_text.h"

namespace muo::cli {

ResultFile::ResultFile(std::string path) : path_(std::move(path)) {
  if (path_ != "-") return;
  std::fflush(stdout);
  output_ = FileDescriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!output_ || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    throw Error(concat("--result -: cannot redirect standard output: ", system_error_text(errno)));
}

void ResultFile::write(const nlohmann::ordered_json& result) const {
  if (path_.empty()) return;
  const std::string line = json_text(result) + '\n';
  if (!output_)
    replace_file(path_, line);
  else if (::dprintf(output_.number(), "%s", line.c_str()) < 0)
    throw WriteError(concat("--result -: ", system_error_text(errno)));
}

}  // namespace muo::cli
