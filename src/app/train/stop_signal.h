#pragma once

#include <atomic>

namespace muo {

// In its scope SIGINT and SIGTERM are numbers that a run looks at between two steps, saves and
// ends; a second one, of either, ends the program at once. A limit on file sizes is an error like a
// full disk. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  [[nodiscard]] const std::atomic<int>& number() const;  // 0: none has come
};

}  // namespace muo
