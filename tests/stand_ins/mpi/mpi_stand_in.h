#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muo::test {

// MPI (mpi.h beside this) between groups of threads of one process, each of which acts as an MPI
// process. Messages between two of them arrive in order, and only after some polls. A short send
// completes at once, a long one when it is received.
//
// complaints() lists errors that MPI forbids and may not detect: different sizes, memory of a
// request that is written to or used by another request before it is done, concurrent calls of two
// threads, calls before the start or after the end, requests left at the end.
class MpiStandIn {
 public:
  explicit MpiStandIn(int processes, std::uint64_t seed = 1);
  ~MpiStandIn();
  MpiStandIn(const MpiStandIn&) = delete;
  MpiStandIn& operator=(const MpiStandIn&) = delete;

  // During its lifetime, the calling thread belongs to the process.
  class Thread {
   public:
    Thread(MpiStandIn& mpi, int process);
    ~Thread();
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
  };

  [[nodiscard]] std::vector<std::string> complaints() const;
  void set_thread_level(int level);    // the highest level that it provides
  void fail(const std::string& call);  // "MPI_Isend": fails from now on
  [[nodiscard]] bool finalized(int process) const;

  struct World;

 private:
  std::unique_ptr<World> world_;
};

}  // namespace muo::test
