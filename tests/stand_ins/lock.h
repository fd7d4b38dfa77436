#pragma once

#include <mutex>

namespace muo::stand_in {

// The lock of the stand-in's whole state. ThreadSanitizer ignores it: work is ordered by streams
// and events only, so that a missing event is reported as a race, whatever the actual timing.
class Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  [[nodiscard]] std::unique_lock<std::mutex>& held() { return held_; }

  // For ThreadSanitizer, called under the lock: everything before publish(edge) happens before
  // everything after another thread's observe(edge).
  static void publish(char* edge);
  static void observe(char* edge);

 private:
  std::unique_lock<std::mutex> held_;
};

}  // namespace muo::stand_in
