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

constexpr int kTag = 0;  // between two processes messages have one order

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  if (MPI_Error_string(code, text.data(), &size) != MPI_SUCCESS) return concat("its error ", code);
  return {text.data(), static_cast<std::size_t>(size)};
}

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw Error(concat("MPI: ", call, ": ", text_of(code)));
}

// MPI installs handlers of its own when it starts. The program's stay.
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

// Between two looks at whether peers are there: they may be on this CPU, or at work for seconds.
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
  static constexpr int kYields = 20;  // few: each lasts as long as whoever else wants this CPU
  static constexpr std::chrono::microseconds kLongestPause = std::chrono::milliseconds(1);

  int looks_ = 0;
  std::chrono::microseconds pause_{50};
};

std::string_view variable(const char* name) {
  const char* const value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread sets any
  return value == nullptr ? std::string_view() : value;
}

// Open MPI's TCP transport listens on every interface, and trusts who connects. On one host it is
// not needed: shared memory serves, unless the user has chosen transports.
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
    MUO_CHECK(is_initialized == 0, "MPI starts once in a process");
    int level = MPI_THREAD_SINGLE;
    {
      const KeptSignalHandlers kept;
      use_shared_memory_on_one_host();
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    }
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    if (level < MPI_THREAD_SERIALIZED)
      throw InputError(
          "this MPI may be called by one thread only: one with MPI_THREAD_SERIALIZED is needed");
    int rank = -1;
    int size = 0;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    if (rank != process || size != processes)
      throw InputError(concat("to MPI this is process ", rank, " of ", size,
                              ", but the run has it as ", process, " of ", processes,
                              ": start all processes by one mpirun"));
  }

  // Where the exchange was broken off, peers may not come, and MPI would wait for them.
  ~MpiExchange() override {
    if (broken_) return;
    const std::lock_guard lock(mutex_);
    MPI_Finalize();
  }
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;

  // If it is left early, its requests stay as they are: to wait for one is to wait for a peer that
  // may not come, a send cannot be cancelled, and a receive not once its data are on the way. From
  // then on MPI is not called again, so nothing moves but what a network adapter has begun by
  // itself. That may still write to memory of receives, which the caller therefore keeps
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
                           " bytes where ", sizes_[i], " are due"));
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
  std::mutex mutex_;  // MPI is called by one thread at a time
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
