#include "trainer/train/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>

#include "base/host_name.h"
#include "trainer/train/event_messages.h"

namespace muo::trainer {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The seconds in the name of an event file; 0 for other files.
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
  return directory / fmt::format("{}{}.{}.{}", kPrefix, seconds, host_name(), getpid());
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory)
    : file_(new_name(directory), AppendOnlyFile::Past::kNone) {
  write(file_version_event(wall_time()));
}

void EventFile::write(std::string_view event) { file_.append(tf_record(event)); }

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace muo::trainer
