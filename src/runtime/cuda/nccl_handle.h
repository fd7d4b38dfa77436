#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/cuda/nccl_library.h"

namespace muo::nccl {

// Throws Error with NCCL's own text: "NCCL 2.28.9: ncclAllReduce: unhandled cuda error (...),
// WHAT".
void check(const Library& library, Result result, const char* function, Comm comm,
           const std::string& what);

// A group of NCCL calls issued as one. After an error no group stays open.
class Grouped {
 public:
  explicit Grouped(const Functions& functions) : functions_(functions) {}
  ~Grouped() {
    if (open_) static_cast<void>(functions_.group_end());
  }
  Grouped(const Grouped&) = delete;
  Grouped& operator=(const Grouped&) = delete;
  [[nodiscard]] Result start() {
    const Result result = functions_.group_start();
    open_ = result == Result::kSuccess;
    return result;
  }
  [[nodiscard]] Result end() {
    open_ = false;
    return functions_.group_end();
  }

 private:
  const Functions& functions_;
  bool open_ = false;
};

// Runs `task` on a new thread and waits for it as long as `patient` returns true. False if the task
// is still running then, possibly for ever. For calls of NCCL that wait for the GPU, or for peers
// that may be gone.
bool run_while(const std::function<bool()>& patient, std::function<void()> task) noexcept;
bool run_with_deadline(std::chrono::milliseconds timeout, std::function<void()> task) noexcept;

// An NCCL communicator. The rank's thread uses it; any thread may abort it meanwhile.
class Handle {
 public:
  Handle(Library library, Comm comm, std::string name)
      : library_(std::move(library)), name_(std::move(name)), comm_(comm) {}
  // Its maker calls destroy() or abort() first.
  ~Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // Calls task(comm), or throws PeerFailed if it was aborted or destroyed.
  void use(const std::function<void(Comm)>& task);
  // Ends NCCL's kernels at once, also those of graph replays. Waits for a call in progress, but
  // only briefly, as that call may be the one that hangs.
  void abort() noexcept;
  // NCCL waits until every graph that contains work of this communicator is destroyed. On a timeout
  // returns false, writes a line to stderr, and leaves the communicator undestroyed.
  bool destroy(std::chrono::milliseconds timeout) noexcept;

 private:
  [[nodiscard]] Comm take(std::chrono::milliseconds timeout) noexcept;

  const Library library_;  // a copy, as a thread that hangs in NCCL may outlive the group
  const std::string name_;
  std::mutex mutex_;                     // held by use()
  Comm comm_;                            // null once taken
  std::atomic<bool> abandoned_ = false;  // taken while a call hangs
};

}  // namespace muo::nccl
