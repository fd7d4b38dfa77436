#include "cli/result_file.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/json_text.h"
#include "base/system_error_text.h"

namespace muo::cli {

void require_writable(std::string_view option, const std::filesystem::path& file) {
  std::error_code error;
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::string reason;
  if (std::filesystem::is_directory(file, error))
    reason = system_error_text(EISDIR);
  else if (std::filesystem::exists(file, error) && !std::filesystem::is_regular_file(file, error))
    reason = "it is not a regular file";
  else if (::access(folder.c_str(), W_OK | X_OK) != 0)
    reason = system_error_text(errno);
  if (!reason.empty())
    throw InputError(concat(option, ": cannot write to ", file.string(), ": ", reason));
}

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
