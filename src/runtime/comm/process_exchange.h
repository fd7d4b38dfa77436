#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace muo {

// Moves bytes between the memories of a world's processes: the transport of the host communicator's
// collectives. Any thread may call, one at a time.
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
  // Returns when all is sent and received. Between two processes the n-th send of one matches the
  // n-th receive of the other, of equal size. Throws PeerFailed once aborted, Error if the
  // transport fails. After that every later call throws too. As receive buffers may still be
  // written to, the caller must then keep them until the process ends.
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives) = 0;
  // Releases the waiting thread. From any thread, any number of times.
  virtual void abort() noexcept = 0;
};

// An exchange by MPI, in which this process is `process` of `processes`; needs the MPI plug-in.
// Throws InputError if the plug-in is missing or does not load, or if mpirun did not start these
// processes. At most one per process, ever.
std::unique_ptr<ProcessExchange> make_mpi_exchange(int process, int processes);

// Describes whether this build can exchange by MPI here, and if not, what to do.
std::string describe_mpi();

}  // namespace muo
