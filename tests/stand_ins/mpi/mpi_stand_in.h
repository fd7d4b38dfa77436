#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muo::test {

// MPI (mpi.h beside this) between groups of threads of one process, each of which is a process to
// it. Messages come in order between two of them, and after some looks only. A short one is sent
// when its send returns, a long one when it is received.
//
// What MPI forbids, and may not notice, is a complaint: sizes that differ, memory of a request that
// is written to, or given to another request, before it is done, calls of two threads at once,
// calls before the start or after the end, requests left at the end.
class MpiStandIn {
 public:
  explicit MpiStandIn(int processes, std::uint64_t seed = 1);
  ~MpiStandIn();
  MpiStandIn(const MpiStandIn&) = delete;
  MpiStandIn& operator=(const MpiStandIn&) = delete;

  // For its life, the calling thread is one of the process.
  class Thread {
   public:
    Thread(MpiStandIn& mpi, int process);
    ~Thread();
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
  };

  [[nodiscard]] std::vector<std::string> complaints() const;
  void set_thread_level(int level);    // the most that it provides
  void fail(const std::string& call);  // "MPI_Isend": fails from now on
  [[nodiscard]] bool finalized(int process) const;

  struct World;

 private:
  std::unique_ptr<World> world_;
};

}  // namespace muo::test
