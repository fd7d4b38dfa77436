#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/file_descriptor.h"

namespace muo {

// One event file of TensorBoard, which another process may read meanwhile.
class EventFile {
 public:
  // Makes <directory>/events.out.tfevents.<seconds since 1970>.<host>.<process> and writes its
  // first event. TensorBoard reads the files of a directory by their names, so the seconds are at
  // least one more than those of the files that are there. Throws Error.
  explicit EventFile(const std::filesystem::path& directory);

  // One of event_messages.h, by one write: a process that is killed loses nothing of it. What
  // cannot be written whole is not written, and an Error; the next one may be.
  void write(std::string_view event);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::int64_t bytes_ = 0;
};

// Seconds since 1970, for events.
double wall_time();

}  // namespace muo
