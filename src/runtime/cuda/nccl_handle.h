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

// Runs `task` on a thread of its own and waits for it, as long as `patient` says; false if it goes
// on, as it may for ever. For calls of NCCL that wait for the GPU, or for peers that may be gone.
bool run_while(const std::function<bool()>& patient, std::function<void()> task) noexcept;
bool run_with_deadline(std::chrono::milliseconds timeout, std::function<void()> task) noexcept;

// A communicator of NCCL. Its rank's thread uses it; any thread may abort it meanwhile.
class Handle {
 public:
  Handle(Library library, Comm comm, std::string name)
      : library_(std::move(library)), name_(std::move(name)), comm_(comm) {}
  // Whoever made it calls destroy() or abort() before.
  ~Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // Calls task(comm), or throws PeerFailed if it was aborted or destroyed.
  void use(const std::function<void(Comm)>& task);
  // NCCL's kernels end at once, in replays of graphs too. Waits for a call that is under way, but
  // not for long: it may be the one that hangs.
  void abort() noexcept;
  // NCCL waits until every graph that holds work of this communicator is destroyed. False, and a
  // line on stderr, if that has not come to pass in time: the communicator is left to itself.
  bool destroy(std::chrono::milliseconds timeout) noexcept;

 private:
  [[nodiscard]] Comm take(std::chrono::milliseconds timeout) noexcept;

  const Library library_;  // its own copy: what hangs in NCCL may outlive the group
  const std::string name_;
  std::mutex mutex_;                     // held by use()
  Comm comm_;                            // null once taken
  std::atomic<bool> torn_away_ = false;  // from a call that hangs
};

}  // namespace muo::nccl
