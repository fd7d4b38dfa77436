#include "runtime/cuda/nccl_handle.h"

#include <condition_variable>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "runtime/rendezvous.h"

namespace muo::nccl {

void check(const Library& library, Result result, const char* function, Comm comm,
           const std::string& what) {
  if (result == Result::kSuccess) return;
  const char* detail = library.functions.get_last_error(comm);
  std::string text = concat("NCCL ", version_text(library.version), ": ", function, ": ",
                            library.functions.get_error_string(result));
  if (detail != nullptr && *detail != '\0') text += concat(" (", detail, ")");
  for (char& c : text)  // NCCL's last error may have several lines
    if (c == '\n') c = ' ';
  throw Error(concat(text, ", ", what));
}

bool run_while(const std::function<bool()>& patient, std::function<void()> task) noexcept {
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  try {
    const auto progress = std::make_shared<Progress>();
    std::thread thread = start_thread([progress, task = std::move(task)] {
      task();
      const std::lock_guard lock(progress->mutex);
      progress->done = true;
      progress->changed.notify_all();
    });
    std::unique_lock lock(progress->mutex);
    while (!progress->done && patient())
      progress->changed.wait_for(lock, std::chrono::milliseconds(5));
    const bool done = progress->done;
    lock.unlock();
    if (done)
      thread.join();
    else
      thread.detach();
    return done;
  } catch (...) {  // no thread or memory available: the task does not run
    return false;
  }
}

bool run_with_deadline(std::chrono::milliseconds timeout, std::function<void()> task) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  return run_while([deadline] { return std::chrono::steady_clock::now() < deadline; },
                   std::move(task));
}

void Handle::use(const std::function<void(Comm)>& task) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr || abandoned_) throw PeerFailed("the communicator was aborted");
  task(comm_);
}

// Null if there is no communicator left to take.
Comm Handle::take(std::chrono::milliseconds timeout) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!mutex_.try_lock()) {
    if (std::chrono::steady_clock::now() > deadline)  // the thread in use() hangs in NCCL
      return abandoned_.exchange(true) ? nullptr : comm_;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Comm taken = std::exchange(comm_, nullptr);
  mutex_.unlock();
  return taken;
}

void Handle::abort() noexcept {
  const Comm comm = take(std::chrono::seconds(2));
  if (comm != nullptr) static_cast<void>(library_.functions.abort(comm));
}

bool Handle::destroy(std::chrono::milliseconds timeout) noexcept {
  const Comm comm = take(timeout);
  if (comm == nullptr) return true;
  const bool destroyed = run_with_deadline(timeout, [f = library_.functions, comm] {
    static_cast<void>(f.finalize(comm));
    static_cast<void>(f.destroy(comm));
  });
  if (!destroyed)
    static_cast<void>(std::fprintf(
        stderr, "muograph: NCCL communicator %s not destroyed: a graph still contains its work\n",
        name_.c_str()));
  return destroyed;
}

}  // namespace muo::nccl
