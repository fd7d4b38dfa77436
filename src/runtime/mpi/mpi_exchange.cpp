// libmuograph_mpi.so: MPI behind src/runtime/comm/process_exchange.h.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/mpi/mpi_plugin.h"
#include "runtime/rank_progress.h"
#include "runtime/rendezvous.h"

namespace muo {
namespace {

constexpr int kTag = 0;  // messages between two processes are ordered, so one tag suffices

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  if (MPI_Error_string(code, text.data(), &size) != MPI_SUCCESS) return concat("error ", code);
  return {text.data(), static_cast<std::size_t>(size)};
}

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw Error(concat("MPI: ", call, ": ", text_of(code)));
}

// Restores the program's signal handlers, which MPI replaces when it starts.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers() {
    for (std::size_t s = 1; s < handlers_.size(); ++s)
      known_[s] = ::sigaction(static_cast<int>(s), nullptr, &handlers_[s]) == 0;
  }
  ~KeptSignalHandlers() {
    for (std::size_t s = 1; s < handlers_.size(); ++s)
      if (known_[s]) ::sigaction(static_cast<int>(s), &handlers_[s], nullptr);
  }
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;
  KeptSignalHandlers& operator=(const KeptSignalHandlers&) = delete;

 private:
  std::array<struct sigaction, NSIG> handlers_{};
  std::array<bool, NSIG> known_{};
};

// Waits between two polls for peers, which may share this CPU, or be at work for seconds.
class BackOff {
 public:
  void wait() {
    ++looks_;
    if (looks_ <= kSpins) return;
    if (looks_ <= kSpins + kYields) return std::this_thread::yield();
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<std::chrono::microseconds>(pause_ + pause_ / 4, kLongestPause);
  }

 private:
  static constexpr int kSpins = 5000;
  static constexpr int kYields = 20;  // few: each lasts as long as another thread's time slice
  static constexpr std::chrono::microseconds kLongestPause = std::chrono::milliseconds(1);

  int looks_ = 0;
  std::chrono::microseconds pause_{50};
};

std::string_view variable(const char* name) {
  const char* const value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): only one thread sets variables
  return value == nullptr ? std::string_view() : value;
}

// Open MPI's TCP transport listens on all interfaces and does not authenticate peers. On one host
// it is not needed: use shared memory instead, unless the user has selected transports.
void use_shared_memory_on_one_host() {
  const std::string_view all = variable("OMPI_COMM_WORLD_SIZE");
  const bool is_one_host = all.empty() ? variable("SLURM_STEP_NUM_NODES") == "1"
                                       : variable("OMPI_COMM_WORLD_LOCAL_SIZE") == all;
  if (!is_one_host) return;
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int size = 0;
  MPI_Get_library_version(text.data(), &size);
  const std::string_view version(text.data(), static_cast<std::size_t>(size));
  const bool is_4 = version.starts_with("Open MPI v4."), is_5 = version.starts_with("Open MPI v5.");
  if (!is_4 && !is_5) return;
  // NOLINTBEGIN(concurrency-mt-unsafe)
  ::setenv("OMPI_MCA_btl", is_4 ? "self,vader" : "self,sm", 0);
  ::setenv("OMPI_MCA_pml", "ob1", 0);
  // NOLINTEND(concurrency-mt-unsafe)
}

class MpiExchange final : public ProcessExchange {
 public:
  MpiExchange(int process, int processes, int longest)
      : longest_(static_cast<std::size_t>(longest)) {
    int is_initialized = 0;
    check(MPI_Initialized(&is_initialized), "MPI_Initialized");
    MUO_CHECK(is_initialized == 0, "MPI can be initialised only once per process");
    int level = MPI_THREAD_SINGLE;
    {
      const KeptSignalHandlers kept;
      use_shared_memory_on_one_host();
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    }
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    if (level < MPI_THREAD_SERIALIZED)
      throw InputError(
          "this MPI supports calls by one thread only: use one with MPI_THREAD_SERIALIZED");
    int rank = -1;
    int size = 0;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    if (rank != process || size != processes)
      throw InputError(concat("MPI numbers this process ", rank, " of ", size,
                              ", the launch numbers it ", process, " of ", processes,
                              ": start all processes by one mpirun"));
  }

  // No MPI_Finalize() after an aborted exchange: it would wait for peers that may be gone.
  ~MpiExchange() override {
    if (broken_) return;
    const std::lock_guard lock(mutex_);
    MPI_Finalize();
  }
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;

  // On an early exit its requests are left pending: waiting for one would mean waiting for a peer
  // that may be gone, a send cannot be cancelled, and a receive not once its data are in transit.
  // After that MPI is not called again, so no data move except transfers that a network adapter has
  // started itself. Those may still write to memory of receives, which the caller therefore keeps
  // (process_exchange.h), and read memory of sends, for a peer that ends as well.
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    const std::lock_guard lock(mutex_);
    throw_if_broken();
    try {
      start(sends, receives);
      wait();
    } catch (...) {
      broken_ = true;
      throw;
    }
  }

  void abort() noexcept override { broken_ = true; }

 private:
  void start(std::span<const Send> sends, std::span<const Receive> receives) {
    requests_.clear();
    sizes_.clear();
    for (const Receive& receive : receives)
      for_each_part(receive.bytes, [&](std::byte* data, int size) {
        sizes_.push_back(size);
        check(MPI_Irecv(data, size, MPI_BYTE, receive.process, kTag, MPI_COMM_WORLD,
                        &requests_.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Irecv");
      });
    for (const Send& send : sends)
      for_each_part(send.bytes, [&](const std::byte* data, int size) {
        check(MPI_Isend(data, size, MPI_BYTE, send.process, kTag, MPI_COMM_WORLD,
                        &requests_.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
      });
    statuses_.resize(requests_.size());
  }

  template <class Byte, class Visit>
  void for_each_part(std::span<Byte> bytes, const Visit& visit) const {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(longest_, bytes.size())))
      visit(bytes.data(), static_cast<int>(std::min(longest_, bytes.size())));
  }

  void wait() {
    BackOff back_off;
    while (!all_done()) {
      throw_if_broken();
      RankProgress::check();
      back_off.wait();
    }
    for (std::size_t i = 0; i < sizes_.size(); ++i) {  // receives come first
      int size = 0;
      check(MPI_Get_count(&statuses_[i], MPI_BYTE, &size), "MPI_Get_count");
      if (size != sizes_[i])
        throw Error(concat("MPI: process ", statuses_[i].MPI_SOURCE, " sent ", size,
                           " bytes, expected ", sizes_[i]));
    }
  }

  bool all_done() {
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
    if (code == MPI_ERR_IN_STATUS)
      for (const MPI_Status& status : statuses_)
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "MPI_Testall");
    check(code, "MPI_Testall");
    return done != 0;
  }

  void throw_if_broken() const {
    if (broken_) throw PeerFailed("a peer failed");
  }

  const std::size_t longest_;
  std::mutex mutex_;  // serialises calls of MPI
  std::atomic<bool> broken_ = false;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> sizes_;  // of the receives
};

}  // namespace
}  // namespace muo

extern "C" const muo::MpiPlugin* muograph_mpi_plugin() {
  static constexpr muo::MpiPlugin kPlugin = {
      .make = [](int process, int processes, int longest) -> std::unique_ptr<muo::ProcessExchange> {
        return std::make_unique<muo::MpiExchange>(process, processes, longest);
      }};
  return &kPlugin;
}
