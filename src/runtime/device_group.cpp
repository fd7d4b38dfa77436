#include "runtime/device_group.h"

#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/host/host_communicator.h"
#include "runtime/host/host_device.h"
#include "runtime/keeping_device.h"
#include "runtime/rank.h"

namespace muo {
namespace {

// Remembers the first failure; a root cause displaces the PeerFailed that it provoked.
class FirstFailure {
 public:
  void keep(int rank, bool is_root_cause) {
    const std::lock_guard lock(mutex_);
    Failure& slot = is_root_cause ? root_cause_ : consequence_;
    if (!slot.exception) slot = {std::current_exception(), rank};
  }
  [[nodiscard]] bool any() const { return root_cause_.exception || consequence_.exception; }

  void rethrow_if_any() const {
    const Failure& first = root_cause_.exception ? root_cause_ : consequence_;
    if (!first.exception) return;
    try {
      std::rethrow_exception(first.exception);
    } catch (const InputError&) {
      throw;
    } catch (const std::exception& failure) {
      throw Error(concat("rank ", first.rank, ": ", failure.what()));
    } catch (...) {
      throw Error(concat("rank ", first.rank, ": an exception of unknown type"));
    }
  }

 private:
  struct Failure {
    std::exception_ptr exception;
    int rank = -1;
  };
  std::mutex mutex_;
  Failure root_cause_;
  Failure consequence_;
};

}  // namespace

class DeviceGroup::Impl {
 public:
  explicit Impl(const GroupOptions& options)
      : options_(options), rendezvous_(options.world), ranks_(size(options)) {
    if (options.plugin != nullptr)
      communicators_ =
          options.plugin->make_communicators(options.communicator, options.world, rendezvous_);
    else
      communicators_ = make_host_communicators(options.world, rendezvous_);
    on_every_rank([this](int rank) { make_rank(rank); });
  }
  ~Impl() {  // a rank's end of a communicator may wait for the others'
    for_each_rank_at_once([](std::unique_ptr<Rank>& rank) { rank->finish(); });
    for_each_rank_at_once([](std::unique_ptr<Rank>& rank) { rank.reset(); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void run(const std::function<void(RankContext&)>& body) {
    MUO_CHECK(usable_, "a rank of this group has failed before");
    on_every_rank([&](int rank) {
      RankContext& context = at(rank)->context();
      context.device.bind_thread();
      body(context);
      rendezvous_.leave();
    });
  }

 private:
  static std::size_t size(const GroupOptions& options) {
    MUO_CHECK(options.world >= 1, "a group of ", options.world, " devices");
    MUO_CHECK(options.ranks_per_device >= 1, options.ranks_per_device, " ranks per device");
    return static_cast<std::size_t>(options.world);
  }
  template <class Body>
  void for_each_rank_at_once(const Body& body) {
    std::vector<std::jthread> threads;
    for (std::unique_ptr<Rank>& rank : ranks_)
      if (rank) threads.emplace_back([&] { body(rank); });
  }
  std::unique_ptr<Rank>& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  // On the rank's own thread.
  void make_rank(int rank) {
    std::unique_ptr<Device> device =
        options_.plugin != nullptr
            ? options_.plugin->make_device(rank, rank / options_.ranks_per_device)
            : std::make_unique<HostDevice>(
                  rank, HostDeviceOptions{.random_order_seed = options_.random_order_seed});
    device->bind_thread();
    std::unique_ptr<Communicator> communicator = communicators_->join(*device);
    if (options_.plugin != nullptr) device = keep_memory(std::move(device));
    at(rank) = std::make_unique<Rank>(std::move(device), std::move(communicator), rendezvous_);
  }

  // If one throws, the others are released; the first root cause is rethrown here.
  void on_every_rank(const std::function<void(int rank)>& body) {
    FirstFailure failure;
    const auto guarded = [&](int rank) {
      try {
        body(rank);
      } catch (const PeerFailed&) {
        failure.keep(rank, /*is_root_cause=*/false);
        release_all();
      } catch (...) {
        failure.keep(rank, /*is_root_cause=*/true);
        release_all();
      }
    };
    start_and_join(guarded);
    usable_ = !failure.any();
    failure.rethrow_if_any();
  }

  void release_all() noexcept {
    rendezvous_.break_all();
    communicators_->abort();
  }

  template <class Guarded>
  void start_and_join(const Guarded& guarded) {
    std::vector<std::jthread> threads;
    threads.reserve(ranks_.size());
    try {
      for (int rank = 0; rank < options_.world; ++rank)
        threads.emplace_back([&guarded, rank] { guarded(rank); });
    } catch (...) {  // the system refuses a thread: those that run must not wait for it
      usable_ = false;
      release_all();
      throw;
    }
  }

  const GroupOptions options_;
  Rendezvous rendezvous_;
  std::unique_ptr<CommunicatorGroup> communicators_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  bool usable_ = true;
};

DeviceGroup::DeviceGroup(const GroupOptions& options) : impl_(std::make_unique<Impl>(options)) {}
DeviceGroup::~DeviceGroup() = default;

void DeviceGroup::run(const std::function<void(RankContext&)>& body) { impl_->run(body); }

}  // namespace muo
