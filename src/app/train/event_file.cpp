#include "app/train/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <string>
#include <system_error>

#include "app/checkpoint/durable_files.h"
#include "app/train/event_messages.h"
#include "base/check.h"

namespace muo {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

// 0 for what is no event file.
std::int64_t seconds_of(const std::string& name) {
  std::int64_t seconds = 0;
  if (name.starts_with(kPrefix))
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
  return seconds;
}

std::filesystem::path new_name(const std::filesystem::path& directory) {
  auto seconds = static_cast<std::int64_t>(wall_time());
  for (const std::filesystem::path& entry : entries_of(directory))
    seconds = std::max(seconds, seconds_of(entry.filename().string()) + 1);
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {"localhost"};
  return directory / fmt::format("{}{}.{}.{}", kPrefix, seconds, host.data(), getpid());
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory)
    : path_(new_name(directory)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644)) {
  if (!file_)
    throw Error(
        fmt::format("cannot open {}: {}", path_.string(), std::generic_category().message(errno)));
  write(file_version_event(wall_time()));
}

void EventFile::write(std::string_view event) {
  const std::string record = tf_record(event);
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.number(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int code = errno;
      // Readers stop at half a record. Where even this fails, they do.
      static_cast<void>(ftruncate(file_.number(), bytes_));
      throw Error(fmt::format("cannot write {}: {}", path_.string(),
                              std::generic_category().message(code)));
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  bytes_ += static_cast<std::int64_t>(record.size());
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace muo
