#pragma once

#include <mutex>

namespace muo::stand_in {

// The lock of all that the stand-in knows. What happens under it orders nothing in the eyes of
// ThreadSanitizer: work is ordered by streams and events alone, so that a forgotten event is a
// race, whatever the time at which things happened.
class Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  [[nodiscard]] std::unique_lock<std::mutex>& held() { return held_; }

  // To ThreadSanitizer, under the lock: what this thread did before publish(edge) comes before what
  // another does after observe(edge).
  static void publish(char* edge);
  static void observe(char* edge);

 private:
  std::unique_lock<std::mutex> held_;
};

}  // namespace muo::stand_in
