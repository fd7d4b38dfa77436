#include "runtime/device_group.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "runtime/deferred_free.h"
#include "runtime/host/host_communicator.h"
#include "runtime/host/host_device.h"
#include "runtime/rank.h"

namespace muo {
namespace {

// Keeps the first failure; a root cause takes precedence over the PeerFailed that it provoked.
class FirstFailure {
 public:
  // Rank -1: a failure of another process, whose text names its place.
  void keep(int rank, std::int64_t step, bool is_root_cause, std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    Failure& slot = is_root_cause ? root_cause_ : consequence_;
    if (!slot.exception) slot = {std::move(exception), rank, step};
    changed_.notify_all();
  }
  // If only a consequence is known, waits until its root cause is, or for `timeout`.
  void await_root_cause(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (consequence_.exception)
      changed_.wait_for(lock, timeout, [this] { return root_cause_.exception != nullptr; });
  }
  [[nodiscard]] bool any() const {
    const std::lock_guard lock(mutex_);
    return root_cause_.exception || consequence_.exception;
  }
  void rethrow_if_any() const {
    const std::lock_guard lock(mutex_);
    const Failure& first = root_cause_.exception ? root_cause_ : consequence_;
    if (!first.exception) return;
    const std::string where = first.rank < 0 ? ""
                              : first.step < 0
                                  ? concat("rank ", first.rank, ": ")
                                  : concat("rank ", first.rank, ", step ", first.step, ": ");
    try {
      std::rethrow_exception(first.exception);
    } catch (const InputError&) {
      throw;
    } catch (const ThreadRefused& failure) {
      throw ThreadRefused(where + failure.what());
    } catch (const std::exception& failure) {
      throw Error(where + failure.what());
    } catch (...) {
      throw Error(where + "an exception of unknown type");
    }
  }
  [[nodiscard]] Watchdog::Cause cause() const {
    try {
      rethrow_if_any();
    } catch (const InputError& error) {
      return {.text = error.what(), .exit_code = 2};
    } catch (const Error& error) {
      return {.text = error.what()};
    }
    return {.text = "unknown failure"};
  }

 private:
  struct Failure {
    std::exception_ptr exception;
    int rank = -1;
    std::int64_t step = -1;
  };
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Failure root_cause_;
  Failure consequence_;
};

Timeouts timeouts_of(const GroupOptions& options) {
  Timeouts timeouts{.requested = options.watch.stuck_after};
  if (options.plugin != nullptr) timeouts.in_steps = options.plugin->timeout;
  return timeouts;
}

IdleElsewhere idle_elsewhere(ProcessGroup* processes) {
  if (processes == nullptr) return {};
  return [processes](Timeouts::Time here) { return processes->share_idle_time(here); };
}

HostWorld host_world(const GroupOptions& options) {
  const ProcessGroup* processes = options.processes;
  HostWorld out{.processes = {options.local()}};
  if (processes == nullptr) return out;
  out.processes.clear();
  for (int p = 0; p < processes->processes(); ++p)
    out.processes.push_back(processes->ranks_of(p));
  out.process = processes->process();
  out.exchange = options.exchange;
  return out;
}

// Deadline of waits on a device: later than the watchdog's, whose report is more precise.
Timeouts::Time deadline_of(const GroupOptions& options) {
  const Timeouts timeouts = timeouts_of(options);
  return timeouts.endless() ? Timeouts::Time::zero() : timeouts.longest() + std::chrono::seconds(5);
}

}  // namespace

class DeviceGroup::Impl {
 public:
  explicit Impl(const GroupOptions& options)
      : options_(options),
        local_(checked(options)),
        rendezvous_(local_.count),
        common_(local_.count),
        progress_(static_cast<std::size_t>(local_.count)),
        interruption_(rendezvous_, progress_, options.plugin == nullptr),
        ranks_(static_cast<std::size_t>(local_.count)),
        watchdog_(progress_, timeouts_of(options), options.watch,
                  {.first_rank = local_.first,
                   .fail = [this](const Stuck& stuck) { fail(stuck); },
                   .release = [this] { release_all(); },
                   .cause = [this] { return failure_.cause(); },
                   .idle_elsewhere = idle_elsewhere(options.processes)}) {
    const CommunicatorMembers members{.world = options.world,
                                      .local = local_,
                                      .rendezvous = rendezvous_,
                                      .processes = options.processes};
    communicators_ = options.plugin != nullptr
                         ? options.plugin->make_communicators(options.communicator, members,
                                                              deadline_of(options))
                         : make_host_communicators(host_world(options), rendezvous_);
    if (options.processes != nullptr)
      options.processes->on_failure(
          [this](const std::string& cause, int exit_code) { on_remote_failure(cause, exit_code); });
    try {
      on_every_rank("the creation of its device", [this](int rank) { make_rank(rank); });
    } catch (...) {
      if (options.processes != nullptr) options.processes->on_failure({});
      end_ranks();
      throw;
    }
  }
  ~Impl() {
    if (options_.processes != nullptr) options_.processes->on_failure({});
    end_ranks();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void run(const std::function<void(RankContext&)>& body) {
    MUO_CHECK(usable_, "a rank of this device group has failed before");
    on_every_rank("the start-up", [&](int rank) {
      RankContext& context = at(rank)->context();
      context.device.bind_thread();
      body(context);
      rendezvous_.leave();
    });
  }

 private:
  static RankRange checked(const GroupOptions& options) {
    MUO_CHECK(options.world >= 1, "a group of ", options.world, " devices");
    MUO_CHECK(options.ranks_per_device >= 1, options.ranks_per_device, " ranks per device");
    return options.local();
  }
  // Ranks end concurrently, as the end of a rank's communicator may wait for the others'.
  void end_ranks() noexcept {
    const Watchdog::Scope watched(watchdog_);
    try {
      at_once("the end of its work", [this](int rank) {
        if (at(rank)) at(rank)->finish();
      });
      at_once("the end of its device", [this](int rank) { at(rank).reset(); });
    } catch (const ThreadRefused&) {  // ranks_ destroys them sequentially
    }
  }
  [[nodiscard]] std::size_t index(int rank) const {
    return static_cast<std::size_t>(rank - local_.first);
  }
  std::unique_ptr<Rank>& at(int rank) { return ranks_[index(rank)]; }

  // On the rank's own thread.
  void make_rank(int rank) {
    std::unique_ptr<Device> device =
        options_.plugin != nullptr
            ? options_.plugin->make_device(
                  rank,
                  options_.first_device + static_cast<int>(index(rank)) / options_.ranks_per_device)
            : std::make_unique<HostDevice>(
                  rank, HostDeviceOptions{.random_order_seed = options_.random_order_seed});
    device->bind_thread();
    RankStreams streams(*device, options_.graph_branches());
    std::unique_ptr<Communicator> communicator = communicators_->join(*device);
    if (options_.plugin != nullptr) device = keep_memory(std::move(device));
    at(rank) = std::make_unique<Rank>(std::move(device), std::move(streams),
                                      std::move(communicator), rendezvous_, progress_[index(rank)],
                                      options_.plugin == nullptr ? &common_ : nullptr,
                                      &interruption_, options_.processes);
  }

  // If a rank throws, the others are released; the first root cause is rethrown here.
  void on_every_rank(const char* phase, const std::function<void(int rank)>& body) {
    const auto failed = [this](int rank, bool is_root_cause) {
      failure_.keep(rank, progress_[index(rank)].view().step, is_root_cause,
                    std::current_exception());
      watchdog_.group_failed();
      if (is_root_cause) report_to_processes();
      release_all();
    };
    {
      const Watchdog::Scope watched(watchdog_);
      at_once(phase, [&](int rank) {
        try {
          body_or_cause(rank, body);
        } catch (const PeerFailed&) {
          failed(rank, /*is_root_cause=*/false);
        } catch (...) {
          failed(rank, /*is_root_cause=*/true);
        }
      });
    }
    usable_ = !failure_.any();
    if (options_.processes != nullptr) failure_.await_root_cause(kRemoteCauseTimeout);
    failure_.rethrow_if_any();
  }

  // A rank that was stopped by a peer's failure may itself be the root cause: for example, its
  // device timed out, and the peer's noticed that first. Its communicator's check() throws the
  // cause.
  void body_or_cause(int rank, const std::function<void(int rank)>& body) {
    try {
      body(rank);
    } catch (const PeerFailed&) {
      if (at(rank)) at(rank)->context().communicator.check();
      throw;
    }
  }

  void fail(const Stuck& stuck) {
    // According to NCCL's guide, with several GPUs in a process a launch may wait for another
    // rank's.
    const bool may_block = options_.plugin != nullptr && local_.count > options_.ranks_per_device;
    failure_.keep(stuck.rank, stuck.step, /*is_root_cause=*/true,
                  std::make_exception_ptr(Error(
                      stuck.what + (may_block ? "; several GPUs of one process may have blocked "
                                                "each other: try --process-per-device"
                                              : ""))));
    report_to_processes();
  }
  void report_to_processes() {
    if (options_.processes == nullptr) return;
    const Watchdog::Cause cause = failure_.cause();
    ProcessGroup& processes = *options_.processes;
    processes.fail(concat(processes.describe(processes.process()), ": ", cause.text),
                   cause.exit_code);
  }
  // Called when another process has failed.
  void on_remote_failure(const std::string& cause, int exit_code) {
    failure_.keep(-1, -1, /*is_root_cause=*/true,
                  exit_code == 2 ? std::make_exception_ptr(InputError(cause))
                                 : std::make_exception_ptr(Error(cause)));
    watchdog_.group_failed();
    release_all();
  }

  void release_all() noexcept {
    for (RankProgress& rank : progress_)
      rank.stop();
    rendezvous_.break_all();
    communicators_->abort();
  }

  // Calls task(rank) on one thread per rank, and joins them.
  template <class Task>
  void at_once(const char* phase, const Task& task) {
    std::vector<std::jthread> threads;
    threads.reserve(ranks_.size());
    try {
      for (int rank = local_.first; rank < local_.end(); ++rank)
        threads.push_back(start_thread<std::jthread>([this, phase, &task, rank] {
          const RankProgress::Thread thread(progress_[index(rank)], phase);
          task(rank);
        }));
    } catch (...) {  // no thread available: the running ones must not wait for it
      usable_ = false;
      release_all();
      throw;
    }
  }

  // Another process' report may arrive after its effect on this one's collectives.
  static constexpr std::chrono::seconds kRemoteCauseTimeout{3};

  const GroupOptions options_;
  const RankRange local_;
  Rendezvous rendezvous_;
  CommonMemory common_;
  std::unique_ptr<CommunicatorGroup> communicators_;
  std::vector<RankProgress> progress_;
  Interruption interruption_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  FirstFailure failure_;
  bool usable_ = true;
  Watchdog watchdog_;
};

DeviceGroup::DeviceGroup(const GroupOptions& options) : impl_(std::make_unique<Impl>(options)) {}
DeviceGroup::~DeviceGroup() = default;

void DeviceGroup::run(const std::function<void(RankContext&)>& body) { impl_->run(body); }

}  // namespace muo
