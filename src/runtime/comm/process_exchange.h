#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace muo {

// Moves bytes between the memories of a world's processes: what a communicator of the host sends
// collectives by. One thread at a time calls, any thread.
class ProcessExchange {
 public:
  struct Send {
    int process;
    std::span<const std::byte> bytes;
  };
  struct Receive {
    int process;
    std::span<std::byte> bytes;
  };

  virtual ~ProcessExchange() = default;
  // Returns when all is sent and received. Between two processes the n-th send of one is the n-th
  // receive of the other, of equal size. Throws PeerFailed once aborted, Error if the engine fails.
  // Once it has thrown it is over: every later call throws, and as memory of the receives may still
  // be written to, the caller keeps it until the process ends.
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives) = 0;
  // Releases who waits. From any thread, any number of times.
  virtual void abort() noexcept = 0;
};

// By MPI, of which this process is `process` of `processes`: the plug-in that was built with it.
// Throws InputError if there is none, it does not load, or mpirun did not start these processes.
// One per process, ever.
std::unique_ptr<ProcessExchange> make_mpi_exchange(int process, int processes);

// Says whether this build can exchange by MPI here, and if it cannot, what to do.
std::string describe_mpi();

}  // namespace muo
