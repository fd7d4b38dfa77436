#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/durable_files.h"

namespace muo::app {

// One event file of TensorBoard, which another process may read meanwhile.
class EventFile {
 public:
  // Makes <directory>/events.out.tfevents.<seconds since 1970>.<host>.<process> and writes its
  // first event. TensorBoard reads the files of a directory by their names, so the seconds are at
  // least one more than those of the files that are there. Throws Error.
  explicit EventFile(const std::filesystem::path& directory);

  // One of event_messages.h: a process that is killed loses nothing of it. What cannot be written
  // is a WriteError; the next one may be written again.
  void write(std::string_view event);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendOnlyFile file_;
};

// Seconds since 1970, for events.
double wall_time();

}  // namespace muo::app
