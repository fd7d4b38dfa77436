#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/durable_files.h"

namespace muo::trainer {

// A TensorBoard event file, which another process may read while it is being written.
class EventFile {
 public:
  // Creates <directory>/events.out.tfevents.<seconds since 1970>.<host>.<process> and writes its
  // first event. TensorBoard reads a directory's files in the order of their names, so the seconds
  // are at least one more than those of any file already there. Throws Error.
  explicit EventFile(const std::filesystem::path& directory);

  // Appends an event made by event_messages.h; it survives if the process is killed afterwards.
  // After throwing WriteError, the next event may be written again.
  void write(std::string_view event);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendOnlyFile file_;
};

// Seconds since 1970, for events.
double wall_time();

}  // namespace muo::trainer
