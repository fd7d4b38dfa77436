#include "runtime/device_group.h"

#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/host/host_rank.h"

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
      : rendezvous_(options.world), group_(options.world, rendezvous_) {
    for (int rank = 0; rank < options.world; ++rank)
      ranks_.push_back(std::make_unique<HostRank>(
          rank, group_, HostDeviceOptions{.random_order_seed = options.random_order_seed}));
  }

  void run(const std::function<void(RankContext&)>& body) {
    MUO_CHECK(usable_, "a rank of this group has failed before");
    FirstFailure failure;
    const auto guarded = [&](RankContext& context) {
      try {
        body(context);
        rendezvous_.leave();
      } catch (const PeerFailed&) {
        failure.keep(context.rank, /*is_root_cause=*/false);
        rendezvous_.break_all();
      } catch (...) {
        failure.keep(context.rank, /*is_root_cause=*/true);
        rendezvous_.break_all();
      }
    };
    start_and_join(guarded);
    usable_ = !failure.any();
    failure.rethrow_if_any();
  }

 private:
  template <class Guarded>
  void start_and_join(const Guarded& guarded) {
    std::vector<std::jthread> threads;
    threads.reserve(ranks_.size());
    try {
      for (const auto& rank : ranks_)
        threads.emplace_back([&guarded, context = &rank->context()] { guarded(*context); });
    } catch (...) {  // the system refuses a thread: those that run must not wait for it
      usable_ = false;
      rendezvous_.break_all();
      throw;
    }
  }

  Rendezvous rendezvous_;
  HostCommunicatorGroup group_;
  std::vector<std::unique_ptr<HostRank>> ranks_;
  bool usable_ = true;
};

DeviceGroup::DeviceGroup(const GroupOptions& options) {
  if (options.backend != Backend::kHost)
    throw InputError(
        "--backend cuda: this version has CUDA kernels, but does not train with them yet; use "
        "--backend host");
  MUO_CHECK(options.world >= 1, "a group of ", options.world, " devices");
  impl_ = std::make_unique<Impl>(options);
}
DeviceGroup::~DeviceGroup() = default;

void DeviceGroup::run(const std::function<void(RankContext&)>& body) { impl_->run(body); }

}  // namespace muo
